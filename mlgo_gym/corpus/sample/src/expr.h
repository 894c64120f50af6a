/* Bytecode of the expression compiler and its virtual machine. */
#ifndef SAMPLE_EXPR_H
#define SAMPLE_EXPR_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_CODE = 512, MAX_CONSTS = 64, MAX_STACK = 64, MAX_NESTING = 40 };

typedef enum {
  OP_CONST, /* operand: constant index */
  OP_VAR,   /* operand: 0 for 'a' .. 25 for 'z' */
  OP_ADD,
  OP_SUB,
  OP_MUL,
  OP_DIV,
  OP_MOD,
  OP_POW,
  OP_LESS,
  OP_EQUAL,
  OP_NEG,
  OP_NOT,
  OP_CALL, /* operand: builtin index */
  OP_JUMP, /* operand: target */
  OP_JUMP_IF_ZERO,
  OP_RETURN
} opcode;

typedef struct {
  uint8_t op;
  uint16_t operand;
} instruction;

typedef struct {
  instruction code[MAX_CODE];
  double consts[MAX_CONSTS];
  size_t code_len;
  size_t const_len;
} expr_program;

typedef struct {
  const char *name;
  double (*fn)(double);
} expr_builtin;

extern const expr_builtin expr_builtins[];
extern const size_t expr_builtin_count;

int expr_compile(const char *text, expr_program *out);
int expr_verify(const expr_program *p);
int expr_run(const expr_program *p, const double vars[26], double *result);
int expr_eval(const char *text, const double vars[26], double *result);
char *expr_disassemble(const expr_program *p);

static inline double apply_binary(opcode op, double a, double b) {
  switch (op) {
  case OP_ADD: return a + b;
  case OP_SUB: return a - b;
  case OP_MUL: return a * b;
  case OP_DIV: return a / b;
  case OP_MOD: return fmod(a, b);
  case OP_POW: return pow(a, b);
  case OP_LESS: return a < b;
  case OP_EQUAL: return a == b;
  default: return 0;
  }
}

static inline double apply_unary(opcode op, double a) {
  return op == OP_NEG ? -a : op == OP_NOT ? a == 0 : a;
}

#endif
