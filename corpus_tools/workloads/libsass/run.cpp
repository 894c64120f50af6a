// Compiles the stylesheet that its argument names, in every output style, by libsass's C API.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sass.h>
#include <sstream>
#include <string>

// All paths are made relative to the folder the program runs in, whose name shall not matter.
extern "C" char *getcwd(char *buffer, size_t) noexcept { return std::strcpy(buffer, "/"); }

namespace {

uint32_t hash(const char *text) {
  uint32_t value = 2166136261u;
  while (text && *text)
    value = (value ^ static_cast<unsigned char>(*text++)) * 16777619u;
  return value;
}

// Prints the sizes and hashes of the CSS and its source map; returns whether there was no error.
bool compile(const std::string &source, Sass_Output_Style style) {
  Sass_Data_Context *data = sass_make_data_context(sass_copy_c_string(source.c_str()));
  Sass_Context *context = sass_data_context_get_context(data);
  Sass_Options *options = sass_context_get_options(context);
  sass_option_set_output_style(options, style);
  sass_option_set_precision(options, 4);
  sass_option_set_source_map_file(options, "out.map");
  sass_option_set_omit_source_map_url(options, style == SASS_STYLE_COMPRESSED);
  bool fine = sass_compile_data_context(data) == 0;
  if (!fine)
    std::fputs(sass_context_get_error_message(context), stderr);
  const char *css = sass_context_get_output_string(context);
  const char *map = sass_context_get_source_map_string(context);
  std::printf("%d css %zu %08x map %zu %08x\n", style, css ? std::strlen(css) : 0, hash(css),
              map ? std::strlen(map) : 0, hash(map));
  sass_delete_data_context(data);
  return fine;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 2)
    return 2;
  std::stringstream source;
  source << std::ifstream(argv[1]).rdbuf();
  bool fine = true;
  for (Sass_Output_Style style :
       {SASS_STYLE_NESTED, SASS_STYLE_EXPANDED, SASS_STYLE_COMPACT, SASS_STYLE_COMPRESSED})
    fine = compile(source.str(), style) && fine;
  return fine ? 0 : 1;
}
