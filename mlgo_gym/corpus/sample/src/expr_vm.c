/* Stack machine for compiled expressions: verifier, interpreter, listing. */
#include <stdio.h>

#include "expr.h"
#include "text_buffer.h"

typedef struct {
  double stack[MAX_STACK];
  size_t sp;
  const double *vars;
  const expr_program *program;
} machine;

typedef struct {
  const char *name;
  int8_t pops;
  int8_t pushes;
  int8_t limit; /* what bounds the operand */
} op_info;

enum { NO_OPERAND, CONST_OPERAND, VAR_OPERAND, CALL_OPERAND, CODE_OPERAND };

static const op_info op_table[] = {
    {"const", 0, 1, CONST_OPERAND}, {"var", 0, 1, VAR_OPERAND},
    {"add", 2, 1, NO_OPERAND},      {"sub", 2, 1, NO_OPERAND},
    {"mul", 2, 1, NO_OPERAND},      {"div", 2, 1, NO_OPERAND},
    {"mod", 2, 1, NO_OPERAND},      {"pow", 2, 1, NO_OPERAND},
    {"less", 2, 1, NO_OPERAND},     {"equal", 2, 1, NO_OPERAND},
    {"neg", 1, 1, NO_OPERAND},      {"not", 1, 1, NO_OPERAND},
    {"call", 1, 1, CALL_OPERAND},   {"jump", 0, 0, CODE_OPERAND},
    {"jump0", 1, 0, CODE_OPERAND},  {"return", 1, 0, NO_OPERAND},
};

static double fn_square(double x) { return x * x; }
static double fn_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
static double fn_unit(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

const expr_builtin expr_builtins[] = {
    {"sqrt", sqrt},    {"floor", floor}, {"ceil", ceil}, {"abs", fabs},
    {"sq", fn_square}, {"sign", fn_sign}, {"unit", fn_unit},
};

const size_t expr_builtin_count =
    sizeof expr_builtins / sizeof *expr_builtins;

static size_t operand_limit(const expr_program *p, int limit) {
  switch (limit) {
  case CONST_OPERAND: return p->const_len;
  case VAR_OPERAND: return 26;
  case CALL_OPERAND: return expr_builtin_count;
  case CODE_OPERAND: return p->code_len;
  default: return 1;
  }
}

static int is_jump(opcode op) { return op == OP_JUMP || op == OP_JUMP_IF_ZERO; }

static int falls_through(opcode op) {
  return op != OP_JUMP && op != OP_RETURN;
}

static int well_formed(const expr_program *p, instruction i) {
  return i.op <= OP_RETURN &&
         i.operand < operand_limit(p, op_table[i.op].limit);
}

/* Records the stack depth at an instruction; zero if two paths disagree. */
static int reach(int16_t *depths, size_t at, int depth) {
  if (depths[at] < 0)
    depths[at] = (int16_t)depth;
  return depths[at] == depth;
}

static int verify_at(const expr_program *p, int16_t *depths, size_t pc) {
  instruction i = p->code[pc];
  if (!well_formed(p, i))
    return 0;
  const op_info *info = &op_table[i.op];
  int depth = depths[pc];
  if (depth < 0)
    return 1; /* unreachable */
  if (depth < info->pops)
    return 0;
  depth += info->pushes - info->pops;
  if (depth > MAX_STACK)
    return 0;
  if (is_jump((opcode)i.op) &&
      (i.operand <= pc || !reach(depths, i.operand, depth)))
    return 0;
  if (!falls_through((opcode)i.op))
    return 1;
  return pc + 1 < p->code_len && reach(depths, pc + 1, depth);
}

/* Whether running the program cannot leave the code or the stack. Jumps only
 * go forward, so one pass sees every instruction after all its sources. */
int expr_verify(const expr_program *p) {
  int16_t depths[MAX_CODE];
  memset(depths, 0xff, sizeof depths);
  if (p->code_len == 0 || !reach(depths, 0, 0))
    return 0;
  for (size_t pc = 0; pc < p->code_len; pc++)
    if (!verify_at(p, depths, pc))
      return 0;
  return 1;
}

static void push(machine *m, double v) { m->stack[m->sp++] = v; }
static double pop(machine *m) { return m->stack[--m->sp]; }

static void run_binary(machine *m, opcode op) {
  double b = pop(m);
  double a = pop(m);
  push(m, apply_binary(op, a, b));
}

/* Executes one instruction; returns the index of the next one. */
static size_t run_one(machine *m, size_t pc) {
  instruction i = m->program->code[pc];
  opcode op = (opcode)i.op;
  switch (op) {
  case OP_CONST: push(m, m->program->consts[i.operand]); break;
  case OP_VAR: push(m, m->vars[i.operand]); break;
  case OP_NEG: push(m, apply_unary(OP_NEG, pop(m))); break;
  case OP_NOT: push(m, apply_unary(OP_NOT, pop(m))); break;
  case OP_CALL: push(m, expr_builtins[i.operand].fn(pop(m))); break;
  case OP_JUMP: return i.operand;
  case OP_JUMP_IF_ZERO: return pop(m) == 0 ? i.operand : pc + 1;
  case OP_RETURN: return m->program->code_len;
  case OP_ADD: run_binary(m, OP_ADD); break;
  case OP_SUB: run_binary(m, OP_SUB); break;
  case OP_MUL: run_binary(m, OP_MUL); break;
  default: run_binary(m, op);
  }
  return pc + 1;
}

/* Runs a verified program; `vars` holds the values of 'a' to 'z'. */
int expr_run(const expr_program *p, const double vars[26], double *result) {
  machine m = {.sp = 0, .vars = vars, .program = p};
  size_t pc = 0;
  while (pc < p->code_len)
    pc = run_one(&m, pc);
  if (m.sp != 1)
    return 0;
  *result = pop(&m);
  return 1;
}

int expr_eval(const char *text, const double vars[26], double *result) {
  expr_program p;
  return expr_compile(text, &p) && expr_run(&p, vars, result);
}

static void put_operand(text_buffer *b, const expr_program *p, instruction i) {
  char digits[32];
  switch (op_table[i.op].limit) {
  case CONST_OPERAND:
    snprintf(digits, sizeof digits, " %g", p->consts[i.operand]);
    put_text(b, digits);
    break;
  case VAR_OPERAND:
    put_char(b, ' ');
    put_char(b, (char)('a' + i.operand));
    break;
  case CALL_OPERAND:
    put_char(b, ' ');
    put_text(b, expr_builtins[i.operand].name);
    break;
  case CODE_OPERAND:
    snprintf(digits, sizeof digits, " @%u", i.operand);
    put_text(b, digits);
    break;
  default: break;
  }
}

/* One instruction a line; the caller frees the text. */
char *expr_disassemble(const expr_program *p) {
  text_buffer b = {NULL, 0, 0, 0};
  for (size_t pc = 0; pc < p->code_len; pc++) {
    instruction i = p->code[pc];
    if (!well_formed(p, i))
      break;
    put_text(&b, op_table[i.op].name);
    put_operand(&b, p, i);
    put_char(&b, '\n');
  }
  return take_text(&b);
}
