"""How hot the call is that LLVM's inline advisor asks about, by the counts of the module's profile.

Where the call is, `mlgo_gym.llvm.inside._call_site` knows; this is its code's second part. LLVM's
own analyses are asked for, from the manager that the advisor holds, as the inliner asks for them:
``BlockFrequencyInfo`` of the caller, which it keeps right while it inlines, the functions' entry
counts as they are by then, and ``ProfileSummaryInfo``.

Nothing that is told depends on how long a program ran: counts are told by their share of all
counts of the profile, ``Summary->TotalCount``, or by where they stand among its cutoffs. So that
LLVM's rounding does not decide, a count is taken to be a millionth more when it is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mlgo_gym.problems import CALL_FEATURES, MOST_SHARE, NO_CUTOFF, SHARE_STEPS

HOTNESS_FEATURES: Final = tuple(CALL_FEATURES["hotness"])
"""The names, in the order in which `int64_t` values are written."""
FUNCTIONS: Final = {
    "get_result": (
        "_ZN4llvm15AnalysisManagerINS_8FunctionEJEE13getResultImplEPNS_11AnalysisKeyERS1_"
    ),
    "get_cached": (
        "_ZNK4llvm15AnalysisManagerINS_6ModuleEJEE19getCachedResultImplEPNS_11AnalysisKeyERS1_"
    ),
    "block_frequency": "_ZN4llvm22BlockFrequencyAnalysis3KeyE",
    "profile_summary": "_ZN4llvm22ProfileSummaryAnalysis3KeyE",
    "proxy": (
        "_ZN4llvm25OuterAnalysisManagerProxyINS_15AnalysisManagerINS_6ModuleEJEEENS_8FunctionEJEE"
        "3KeyE"
    ),
    "block_frequency_of": "_ZNK4llvm18BlockFrequencyInfo12getBlockFreqEPKNS_10BasicBlockE",
    "entry_frequency_of": "_ZNK4llvm18BlockFrequencyInfo12getEntryFreqEv",
    "entry_count": "_ZNK4llvm8Function13getEntryCountEb",
    "hot": "_ZNK4llvm18ProfileSummaryInfo26getOrCompHotCountThresholdEv",
    "cold": "_ZNK4llvm18ProfileSummaryInfo27getOrCompColdCountThresholdEv",
}
"""The code's name of each function or key, and its symbol, in the library that holds LLVM."""
OFFSETS: Final = {
    "analysis_result": 8,  # AnalysisResultModel: its table of functions, Result
    "advisor_module": 8,  # InlineAdvisor: its table, Module &M, FunctionAnalysisManager &FAM
    "advisor_manager": 16,
    "count_flag": 16,  # optional<ProfileCount>: uint64_t Count, ProfileCountType PCT, the flag
    "profile_summary_of": 8,  # ProfileSummaryInfo: const Module *M, unique_ptr<ProfileSummary>
    "cutoffs_begin": 8,  # ProfileSummary: Kind PSK, vector DetailedSummary, uint64_t TotalCount
    "cutoffs_end": 16,
    "total_count": 32,
    "cutoff_least": 8,  # ProfileSummaryEntry: uint32_t Cutoff, uint64_t MinCount, NumCounts
    "cutoff_size": 24,
}
"""The code's name of each part of LLVM's objects, and where it begins, in bytes."""

_STEP: Final = """
  %over_{step} = icmp uge i64 %mantissa, {mantissa}
  %step_{step} = zext i1 %over_{step} to i64
  %to_{step} = add i64 %to_{before}, %step_{step}"""
_CODE: Final = """
define private ptr @llvms(i64 %which) {{
  %at = getelementptr ptr, ptr @mlgo_llvm, i64 %which
  %found = load ptr, ptr %at
  ret ptr %found
}}

define private ptr @member(ptr %of, i64 %offset) {{
  %at = getelementptr i8, ptr %of, i64 %offset
  %value = load ptr, ptr %at
  ret ptr %value
}}

; An analysis of a function.
define private ptr @analysis(ptr %manager, i64 %which, ptr %function) {{
  %ask = call ptr @llvms(i64 {get_result})
  %key = call ptr @llvms(i64 %which)
  %found = call ptr %ask(ptr %manager, ptr %key, ptr %function)
  %result = getelementptr i8, ptr %found, i64 {analysis_result}
  ret ptr %result
}}

define private i64 @frequency(i64 %which, ptr %analysis, ptr %block) {{
  %ask = call ptr @llvms(i64 %which)
  %value = call i64 %ask(ptr %analysis, ptr %block)
  ret i64 %value
}}

; How often a function is entered; below 0 where that is not known.
define private double @entries(ptr %function) {{
  %optional = alloca [3 x i64]
  %ask = call ptr @llvms(i64 {entry_count})
  call void %ask(ptr sret([3 x i64]) %optional, ptr %function, i1 zeroext false)
  %at = getelementptr i8, ptr %optional, i64 {count_flag}
  %flag = load i8, ptr %at
  %is_known = icmp ne i8 %flag, 0
  %count = load i64, ptr %optional
  %wide = uitofp i64 %count to double
  %entries = select i1 %is_known, double %wide, double -1.0
  ret double %entries
}}

; 0 for nothing; else the logarithm of the share, from 1 up to {most_share} for all.
define private i64 @share(double %count, double %total) {{
  %is_some = fcmp ogt double %count, 0.0
  %part = fdiv double %count, %total
  %near = fmul double %part, 0x3FF0000100000000
  %bits = bitcast double %near to i64
  %biased = lshr i64 %bits, 52
  %exponent = sub i64 %biased, {least_exponent}
  %mantissa = and i64 %bits, 4503599627370495
  %to_0 = mul i64 %exponent, {steps}{each_step}
  %is_more = icmp sgt i64 %to_{last}, 1
  %more = select i1 %is_more, i64 %to_{last}, i64 1
  %is_less = icmp slt i64 %more, {most_share}
  %value = select i1 %is_less, i64 %more, i64 {most_share}
  %share = select i1 %is_some, i64 %value, i64 0
  ret i64 %share
}}

; The first cutoff of a summary whose least count is reached.
define private i64 @cutoff(ptr %summary, double %count) {{
  %first = call ptr @member(ptr %summary, i64 {cutoffs_begin})
  %end = call ptr @member(ptr %summary, i64 {cutoffs_end})
  br label %loop
loop:
  %entry = phi ptr [ %first, %0 ], [ %next, %each ]
  %is_end = icmp eq ptr %entry, %end
  br i1 %is_end, label %none, label %each
each:
  %least_at = getelementptr i8, ptr %entry, i64 {cutoff_least}
  %least = load i64, ptr %least_at
  %wide = uitofp i64 %least to double
  %next = getelementptr i8, ptr %entry, i64 {cutoff_size}
  %is_reached = fcmp oge double %count, %wide
  br i1 %is_reached, label %found, label %loop
found:
  %cutoff = load i32, ptr %entry
  %value = zext i32 %cutoff to i64
  ret i64 %value
none:
  ret i64 {no_cutoff}
}}

define private void @put_count(ptr %values, ptr %profile, double %count, double %total) {{
  %summary = call ptr @member(ptr %profile, i64 {profile_summary_of})
  %share = call i64 @share(double %count, double %total)
  call void @put(ptr %values, i64 {call_share}, i64 %share)
  %near = fmul double %count, 0x3FF0000100000000
  %cutoff = call i64 @cutoff(ptr %summary, double %near)
  call void @put(ptr %values, i64 {call_cutoff}, i64 %cutoff)
  %least_hot = call i64 @frequency(i64 {hot}, ptr %profile, ptr null)
  %wide_hot = uitofp i64 %least_hot to double
  %is_hot = fcmp oge double %near, %wide_hot
  %hot = zext i1 %is_hot to i64
  call void @put(ptr %values, i64 {call_is_hot}, i64 %hot)
  %most_cold = call i64 @frequency(i64 {cold}, ptr %profile, ptr null)
  %wide_cold = uitofp i64 %most_cold to double
  %near_cold = fmul double %wide_cold, 0x3FF0000100000000
  %is_cold = fcmp ole double %count, %near_cold
  %cold = zext i1 %is_cold to i64
  call void @put(ptr %values, i64 {call_is_cold}, i64 %cold)
  ret void
}}

; Of caller or callee, whether it has counts and its share; how often it is entered, if so.
define private double @put_entries(ptr %values, i64 %flag, i64 %share, ptr %function,
                                   double %total) {{
  %entries = call double @entries(ptr %function)
  %is_counted = fcmp oge double %entries, 0.0
  br i1 %is_counted, label %counted, label %done
counted:
  call void @put(ptr %values, i64 %flag, i64 1)
  %value = call i64 @share(double %entries, double %total)
  call void @put(ptr %values, i64 %share, i64 %value)
  br label %done
done:
  ret double %entries
}}

define private void @put_of_caller(ptr %values, ptr %profile, ptr %manager, ptr %block,
                                   double %total) {{
  %caller = call ptr @ask(i64 {function_of}, ptr %block)
  %entries = call double @put_entries(ptr %values, i64 {call_is_counted}, i64 {caller_entry_share},
                                      ptr %caller, double %total)
  %is_counted = fcmp oge double %entries, 0.0
  br i1 %is_counted, label %counted, label %done
counted:
  %analysis = call ptr @analysis(ptr %manager, i64 {block_frequency}, ptr %caller)
  %here = call i64 @frequency(i64 {block_frequency_of}, ptr %analysis, ptr %block)
  %first = call i64 @frequency(i64 {entry_frequency_of}, ptr %analysis, ptr null)
  %wide_here = uitofp i64 %here to double
  %wide_first = uitofp i64 %first to double
  %times = fdiv double %wide_here, %wide_first
  %count = fmul double %entries, %times
  call void @put_count(ptr %values, ptr %profile, double %count, double %total)
  br label %done
done:
  ret void
}}

; Writes how hot the call is that is asked about; whether one is.
define i32 @mlgo_put_hotness(ptr %values) {{
  call void @llvm.memset.p0.i64(ptr %values, i8 0, i64 {size_bytes}, i1 false)
  call void @put(ptr %values, i64 {call_cutoff}, i64 {no_cutoff})
  %call = load ptr, ptr @mlgo_call
  %is_asked = icmp ne ptr %call, null
  br i1 %is_asked, label %asked, label %none
none:
  ret i32 0
asked:
  %advisor = load ptr, ptr @mlgo_advisor
  %module = call ptr @member(ptr %advisor, i64 {advisor_module})
  %manager = call ptr @member(ptr %advisor, i64 {advisor_manager})
  %block = call ptr @ask(i64 {block_of}, ptr %call)
  %caller = call ptr @ask(i64 {function_of}, ptr %block)
  %proxy = call ptr @analysis(ptr %manager, i64 {proxy}, ptr %caller)
  %modules = load ptr, ptr %proxy
  %ask_cached = call ptr @llvms(i64 {get_cached})
  %key = call ptr @llvms(i64 {profile_summary})
  %cached = call ptr %ask_cached(ptr %modules, ptr %key, ptr %module)
  %is_cached = icmp ne ptr %cached, null
  br i1 %is_cached, label %known, label %done
known:
  %profile = getelementptr i8, ptr %cached, i64 {analysis_result}
  %summary = call ptr @member(ptr %profile, i64 {profile_summary_of})
  %is_there = icmp ne ptr %summary, null
  br i1 %is_there, label %put, label %done
put:
  %total_at = getelementptr i8, ptr %summary, i64 {total_count}
  %sum = load i64, ptr %total_at
  %is_none = icmp eq i64 %sum, 0
  %least = select i1 %is_none, i64 1, i64 %sum
  %total = uitofp i64 %least to double
  %callee = call ptr @ask(i64 {called_value}, ptr %call)
  call double @put_entries(ptr %values, i64 {callee_is_counted}, i64 {callee_entry_share},
                           ptr %callee, double %total)
  call void @put_of_caller(ptr %values, ptr %profile, ptr %manager, ptr %block, double %total)
  br label %done
done:
  ret i32 1
}}
"""


def code(numbers: Mapping[str, int]) -> str:
    """The IR, by the places of functions in ``@mlgo_llvm`` and of features among the values."""
    steps = (
        _STEP.format(
            step=step,
            before=step - 1,
            mantissa=int((2 ** (step / SHARE_STEPS) - 1) * 2**52),
        )
        for step in range(1, SHARE_STEPS)
    )
    return _CODE.format(
        steps=SHARE_STEPS,
        each_step="".join(steps),
        last=SHARE_STEPS - 1,
        least_exponent=1023 - MOST_SHARE // SHARE_STEPS,
        most_share=MOST_SHARE,
        no_cutoff=NO_CUTOFF,
        size_bytes=8 * len(HOTNESS_FEATURES),
        **OFFSETS,
        **numbers,
    )
