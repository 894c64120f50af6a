// LLVM's own calculateRegAllocScore over the functions of MIR files, for benchmarks/regalloc_score.py.
//
// LLVM's libraries have the function, stock compilers do not call it. Built and run by the benchmark:
//   clang++-22 regalloc_score.cpp $(llvm-config-22 --cxxflags --ldflags --libs)
// For each file, a line "FILE"; for each function of it, a line "NAME\tSCORE".

#include "llvm/CodeGen/MIRParser/MIRParser.h"
#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineBranchProbabilityInfo.h"
#include "llvm/CodeGen/MachineDominators.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <memory>
#include <optional>

using namespace llvm;

// llvm/lib/CodeGen/RegAllocScore.h is not installed; this is its class, as of LLVM 22.
namespace llvm {
class RegAllocScore final {
  double CopyCounts = 0.0;
  double LoadCounts = 0.0;
  double StoreCounts = 0.0;
  double CheapRematCounts = 0.0;
  double LoadStoreCounts = 0.0;
  double ExpensiveRematCounts = 0.0;

public:
  double getScore() const;
};
RegAllocScore calculateRegAllocScore(const MachineFunction &MF, const MachineBlockFrequencyInfo &MBFI);
} // namespace llvm

static void score(StringRef Path) {
  LLVMContext Context;
  SMDiagnostic Error;
  std::unique_ptr<MIRParser> Parser = createMIRParserFromFile(Path, Error, Context);
  std::unique_ptr<TargetMachine> Machine;
  std::unique_ptr<Module> M = Parser ? Parser->parseIRModule([&](StringRef Triple, StringRef) -> std::optional<std::string> {
    std::string Message;
    class Triple Parsed{Triple};
    const Target *T = TargetRegistry::lookupTarget(Parsed, Message);
    Machine.reset(T->createTargetMachine(Parsed, "", "", TargetOptions(), Reloc::PIC_));
    return std::nullopt;
  }) : nullptr;
  if (!M) {
    Error.print("regalloc_score", errs());
    exit(1);
  }
  MachineModuleInfo Info(Machine.get());
  if (Parser->parseMachineFunctions(*M, Info))
    exit(1);
  outs() << Path << "\n";
  for (Function &F : *M)
    if (MachineFunction *MF = Info.getMachineFunction(F)) {
      MachineDominatorTree Dominators(*MF);
      MachineLoopInfo Loops(Dominators);
      MachineBranchProbabilityInfo Probabilities;
      MachineBlockFrequencyInfo Frequencies(*MF, Probabilities, Loops);
      outs() << F.getName() << "\t" << format("%.17g", calculateRegAllocScore(*MF, Frequencies).getScore()) << "\n";
    }
}

int main(int Count, char **Paths) {
  InitializeAllTargetInfos();
  InitializeAllTargets();
  InitializeAllTargetMCs();
  InitializeAllAsmParsers();
  for (int I = 1; I < Count; ++I)
    score(Paths[I]);
}
