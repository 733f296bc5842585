/*
 * The rival of benches/ts/node-boundary.ts: what a call costs when nothing stands between JavaScript and Node-API.
 *
 * Each function is the twin of one of ours, with the same arguments and the same kind of answer. `Twin` is a class
 * whose methods unwrap their object, as ours do.
 */

#include <node_api.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
  uint64_t sum;
} Twin;

static void drop(napi_env env, void *data, void *hint) {
  (void)env;
  (void)hint;
  free(data);
}

static napi_value construct(napi_env env, napi_callback_info info) {
  napi_value self;
  Twin *twin = calloc(1, sizeof *twin);
  if (twin == NULL) return NULL;
  napi_get_cb_info(env, info, NULL, NULL, &self, NULL);
  napi_wrap(env, self, twin, drop, NULL, NULL);
  return self;
}

/* A function without arguments or answer. */
static napi_value noop(napi_env env, napi_callback_info info) {
  (void)env;
  (void)info;
  return NULL;
}

/* A method without arguments or answer. */
static napi_value noop_method(napi_env env, napi_callback_info info) {
  napi_value self;
  Twin *twin = NULL;
  napi_get_cb_info(env, info, NULL, NULL, &self, NULL);
  napi_unwrap(env, self, (void **)&twin);
  return NULL;
}

/* (ids: Uint32Array, skip: boolean) => string: borrows the ids, reads each, answers with a text of the same length. */
static napi_value decode(napi_env env, napi_callback_info info) {
  size_t count = 2;
  napi_value args[2], self, text;
  Twin *twin = NULL;
  napi_typedarray_type type;
  size_t length = 0;
  uint32_t *ids = NULL;
  bool skip = false;
  napi_get_cb_info(env, info, &count, args, &self, NULL);
  napi_unwrap(env, self, (void **)&twin);
  if (napi_get_typedarray_info(env, args[0], &type, &length, (void **)&ids, NULL, NULL) != napi_ok) return NULL;
  napi_get_value_bool(env, args[1], &skip);
  char *letters = malloc(length + 1);
  if (letters == NULL) return NULL;
  for (size_t index = 0; index < length; index++) letters[index] = (char)(' ' + (ids[index] + skip) % 64);
  napi_create_string_utf8(env, letters, length, &text);
  free(letters);
  return text;
}

/* (mask: Uint8Array) => number: borrows the array and reads its first entry. */
static napi_value first(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value args[1], answer;
  napi_typedarray_type type;
  size_t length = 0;
  uint8_t *mask = NULL;
  napi_get_cb_info(env, info, &count, args, NULL, NULL);
  if (napi_get_typedarray_info(env, args[0], &type, &length, (void **)&mask, NULL, NULL) != napi_ok) return NULL;
  napi_create_double(env, length > 0 ? mask[0] : 0, &answer);
  return answer;
}

/* () => number of a method: a counter. */
static napi_value number(napi_env env, napi_callback_info info) {
  napi_value self, answer;
  Twin *twin = NULL;
  napi_get_cb_info(env, info, NULL, NULL, &self, NULL);
  napi_unwrap(env, self, (void **)&twin);
  napi_create_double(env, (double)twin->sum++, &answer);
  return answer;
}

NAPI_MODULE_INIT() {
  napi_value constructor, function;
  napi_property_descriptor methods[] = {
      {"noop", NULL, noop_method, NULL, NULL, NULL, napi_default_method, NULL},
      {"number", NULL, number, NULL, NULL, NULL, napi_default_method, NULL},
      {"decode", NULL, decode, NULL, NULL, NULL, napi_default_method, NULL},
  };
  napi_define_class(env, "Twin", NAPI_AUTO_LENGTH, construct, NULL, 3, methods, &constructor);
  napi_set_named_property(env, exports, "Twin", constructor);
  napi_create_function(env, "noop", NAPI_AUTO_LENGTH, noop, NULL, &function);
  napi_set_named_property(env, exports, "noop", function);
  napi_create_function(env, "first", NAPI_AUTO_LENGTH, first, NULL, &function);
  napi_set_named_property(env, exports, "first", function);
  return exports;
}
