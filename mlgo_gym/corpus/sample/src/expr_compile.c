/* Compiler from arithmetic expressions to bytecode, with constant folding. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "expr.h"

typedef struct {
  const char *pos;
  expr_program *out;
  int nesting;
  int failed;
  size_t barrier; /* no folding across this index: a jump lands there */
} compiler;

static void parse_ternary(compiler *c);

static void fail(compiler *c) { c->failed = 1; }

static char peek(compiler *c) {
  while (isspace((unsigned char)*c->pos))
    c->pos++;
  return *c->pos;
}

static int accept(compiler *c, const char *token) {
  size_t n = strlen(token);
  peek(c);
  if (strncmp(c->pos, token, n) != 0)
    return 0;
  c->pos += n;
  return 1;
}

static void expect(compiler *c, const char *token) {
  if (!accept(c, token))
    fail(c);
}

static size_t emit(compiler *c, opcode op, size_t operand) {
  expr_program *p = c->out;
  if (p->code_len == MAX_CODE) {
    fail(c);
    return 0;
  }
  p->code[p->code_len].op = (uint8_t)op;
  p->code[p->code_len].operand = (uint16_t)operand;
  return p->code_len++;
}

static void emit_const(compiler *c, double v) {
  expr_program *p = c->out;
  size_t i = 0;
  while (i < p->const_len && memcmp(&p->consts[i], &v, sizeof v) != 0)
    i++;
  if (i == MAX_CONSTS) {
    fail(c);
    return;
  }
  if (i == p->const_len)
    p->consts[p->const_len++] = v;
  emit(c, OP_CONST, i);
}

/* The value of the constant `back` instructions before the end, if it is one
 * and no jump lands after it. */
static int trailing_const(const compiler *c, size_t back, double *v) {
  const expr_program *p = c->out;
  if (p->code_len < c->barrier + back)
    return 0;
  const instruction *i = &p->code[p->code_len - back];
  if (i->op != OP_CONST)
    return 0;
  *v = p->consts[i->operand];
  return 1;
}

static void emit_binary(compiler *c, opcode op) {
  double a, b;
  if (trailing_const(c, 1, &b) && trailing_const(c, 2, &a)) {
    c->out->code_len -= 2;
    emit_const(c, apply_binary(op, a, b));
    return;
  }
  emit(c, op, 0);
}

static void emit_unary(compiler *c, opcode op) {
  double a;
  if (trailing_const(c, 1, &a)) {
    c->out->code_len -= 1;
    emit_const(c, apply_unary(op, a));
    return;
  }
  emit(c, op, 0);
}

static void set_barrier(compiler *c) { c->barrier = c->out->code_len; }

static void patch_jump(compiler *c, size_t at) {
  c->out->code[at].operand = (uint16_t)c->out->code_len;
  set_barrier(c);
}

static size_t name_length(const char *s) {
  size_t n = 0;
  while (isalnum((unsigned char)s[n]))
    n++;
  return n;
}

static int find_builtin(const char *name, size_t n) {
  for (size_t i = 0; i < expr_builtin_count; i++)
    if (strncmp(expr_builtins[i].name, name, n) == 0 &&
        expr_builtins[i].name[n] == '\0')
      return (int)i;
  return -1;
}

static void parse_name(compiler *c) {
  const char *name = c->pos;
  size_t n = name_length(name);
  c->pos += n;
  if (n == 1 && islower((unsigned char)*name)) {
    emit(c, OP_VAR, (size_t)(*name - 'a'));
    return;
  }
  int index = find_builtin(name, n);
  if (index < 0)
    fail(c);
  expect(c, "(");
  parse_ternary(c);
  expect(c, ")");
  if (!c->failed)
    emit(c, OP_CALL, (size_t)index);
}

static void parse_primary(compiler *c) {
  char ch = peek(c);
  if (isdigit((unsigned char)ch) || ch == '.') {
    char *end;
    double v = strtod(c->pos, &end);
    if (end == c->pos)
      fail(c);
    c->pos = end;
    emit_const(c, v);
  } else if (isalpha((unsigned char)ch)) {
    parse_name(c);
  } else if (accept(c, "(")) {
    parse_ternary(c);
    expect(c, ")");
  } else {
    fail(c);
  }
}

static void parse_unary(compiler *c) {
  if (++c->nesting > MAX_NESTING)
    fail(c);
  if (c->failed)
    return;
  if (accept(c, "-")) {
    parse_unary(c);
    emit_unary(c, OP_NEG);
  } else if (accept(c, "!")) {
    parse_unary(c);
    emit_unary(c, OP_NOT);
  } else {
    parse_primary(c);
    if (accept(c, "^")) {
      parse_unary(c);
      emit_binary(c, OP_POW);
    }
  }
  c->nesting--;
}

static void parse_product(compiler *c) {
  parse_unary(c);
  while (!c->failed) {
    opcode op = accept(c, "*")   ? OP_MUL
                : accept(c, "/") ? OP_DIV
                : accept(c, "%") ? OP_MOD
                                 : OP_RETURN;
    if (op == OP_RETURN)
      return;
    parse_unary(c);
    emit_binary(c, op);
  }
}

static void parse_sum(compiler *c) {
  parse_product(c);
  while (!c->failed) {
    opcode op = accept(c, "+") ? OP_ADD : accept(c, "-") ? OP_SUB : OP_RETURN;
    if (op == OP_RETURN)
      return;
    parse_product(c);
    emit_binary(c, op);
  }
}

static void parse_comparison(compiler *c) {
  parse_sum(c);
  if (accept(c, "==")) {
    parse_sum(c);
    emit_binary(c, OP_EQUAL);
  } else if (accept(c, "<")) {
    parse_sum(c);
    emit_binary(c, OP_LESS);
  }
}

static void parse_ternary(compiler *c) {
  parse_comparison(c);
  if (!accept(c, "?"))
    return;
  size_t to_else = emit(c, OP_JUMP_IF_ZERO, 0);
  set_barrier(c);
  parse_ternary(c);
  size_t to_end = emit(c, OP_JUMP, 0);
  patch_jump(c, to_else);
  expect(c, ":");
  parse_ternary(c);
  patch_jump(c, to_end);
}

/* Returns zero when the text is not a well-formed expression. */
int expr_compile(const char *text, expr_program *out) {
  compiler c = {text, out, 0, 0, 0};
  out->code_len = out->const_len = 0;
  parse_ternary(&c);
  if (peek(&c) != '\0')
    fail(&c);
  emit(&c, OP_RETURN, 0);
  return !c.failed && expr_verify(out);
}
