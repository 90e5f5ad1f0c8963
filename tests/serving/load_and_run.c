/* Loads a SavedModel as TensorFlow Serving does, runs its signatures from several threads, and checks every answer.

   load_and_run EXPORT CASES THREADS REQUESTS LIBRARY...

   There is no Python here, and nothing of kformer: what works in this program works in a server. LIBRARY are those of
   tensorflow-text's operations, which TensorFlow Serving links. CASES is a text of words (tests/runtime/test_load_and_run.py
   writes it):

     signature NAME INPUTS OUTPUTS        then, for every input and output, the name and index of its tensor
     case SIGNATURE                       then every input, and COUNT and COUNT words for every output

   An input is `string COUNT` and COUNT words, or a scalar: `float`, `int32` or `int64` and one word. A word for a string
   is its bytes in hexadecimal behind an "x"; a word for a number is the number.

   The last line that is printed is JSON: how many requests were answered, how many wrongly, and the resident memory
   in KiB after a quarter of them and at the end. */

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

#define MOST 32 /* inputs or outputs of a signature */
#define TOLERANCE 1e-3

typedef struct {
  char name[256];
  int num_inputs, num_outputs;
  TF_Output inputs[MOST], outputs[MOST];
} Signature;

typedef struct {
  const Signature* signature;
  TF_Tensor* inputs[MOST];
  long counts[MOST];
  char** expected[MOST]; /* for every output, words */
} Case;

static TF_Session* session;
static Signature signatures[MOST];
static int num_signatures;
static Case* cases;
static long num_cases, num_requests, next_request, wrong, quarter_memory;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

static void check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

static long resident_kib(void) {
  FILE* file = fopen("/proc/self/status", "r");
  char line[256];
  long kib = -1;
  while (file && fgets(line, sizeof line, file))
    if (sscanf(line, "VmRSS: %ld", &kib) == 1) break;
  if (file) fclose(file);
  return kib;
}

/* The bytes of a word "x68690a"; the caller frees them. */
static char* bytes_of(const char* word, size_t* size) {
  *size = (strlen(word) - 1) / 2;
  char* bytes = malloc(*size + 1);
  for (size_t i = 0; i < *size; i++) {
    unsigned value;
    sscanf(word + 1 + 2 * i, "%2x", &value);
    bytes[i] = (char)value;
  }
  return bytes;
}

static char* next_word(FILE* file) {
  char* word = NULL;
  if (fscanf(file, "%ms", &word) != 1) fail("cases", "the file ends too early");
  return word;
}

static long next_number(FILE* file) {
  char* word = next_word(file);
  long number = atol(word);
  free(word);
  return number;
}

static TF_Output next_tensor(FILE* file, TF_Graph* graph) {
  char* name = next_word(file);
  TF_Output found = {TF_GraphOperationByName(graph, name), (int)next_number(file)};
  if (!found.oper) fail("no such operation in the graph", name);
  free(name);
  return found;
}

static void free_strings(void* data, size_t length, void* unused) {
  TF_TString* strings = data;
  (void)unused;
  for (size_t i = 0; i < length / sizeof *strings; i++) TF_StringDealloc(&strings[i]);
  free(data);
}

static TF_Tensor* next_strings(FILE* file) {
  long rows = next_number(file);
  TF_TString* strings = calloc(rows ? rows : 1, sizeof *strings);
  for (long i = 0; i < rows; i++) {
    char* word = next_word(file);
    size_t size;
    char* bytes = bytes_of(word, &size);
    TF_StringInit(&strings[i]);
    TF_StringCopy(&strings[i], bytes, size);
    free(bytes);
    free(word);
  }
  int64_t shape[] = {rows};
  return TF_NewTensor(TF_STRING, shape, 1, strings, rows * sizeof *strings, free_strings, NULL);
}

static TF_Tensor* next_scalar(FILE* file, const char* type) {
  char* word = next_word(file);
  TF_Tensor* scalar;
  if (!strcmp(type, "float")) {
    scalar = TF_AllocateTensor(TF_FLOAT, NULL, 0, sizeof(float));
    *(float*)TF_TensorData(scalar) = (float)atof(word);
  } else if (!strcmp(type, "int32")) {
    scalar = TF_AllocateTensor(TF_INT32, NULL, 0, sizeof(int32_t));
    *(int32_t*)TF_TensorData(scalar) = (int32_t)atol(word);
  } else if (!strcmp(type, "int64")) {
    scalar = TF_AllocateTensor(TF_INT64, NULL, 0, sizeof(int64_t));
    *(int64_t*)TF_TensorData(scalar) = (int64_t)atoll(word);
  } else {
    fail("cases: no such type", type);
  }
  free(word);
  return scalar;
}

static TF_Tensor* next_input(FILE* file) {
  char* type = next_word(file);
  TF_Tensor* input = strcmp(type, "string") ? next_scalar(file, type) : next_strings(file);
  free(type);
  return input;
}

static void read_cases(const char* path, TF_Graph* graph) {
  FILE* file = fopen(path, "r");
  char kind[16];
  if (!file) fail("cannot be read", path);
  while (fscanf(file, "%15s", kind) == 1) {
    if (!strcmp(kind, "signature")) {
      Signature* signature = &signatures[num_signatures++];
      if (fscanf(file, "%255s %d %d", signature->name, &signature->num_inputs, &signature->num_outputs) != 3)
        fail("cases", "a signature needs a name and two numbers");
      for (int i = 0; i < signature->num_inputs; i++) signature->inputs[i] = next_tensor(file, graph);
      for (int i = 0; i < signature->num_outputs; i++) signature->outputs[i] = next_tensor(file, graph);
      continue;
    }
    cases = realloc(cases, (num_cases + 1) * sizeof *cases);
    Case* one = &cases[num_cases++];
    one->signature = &signatures[next_number(file)];
    for (int i = 0; i < one->signature->num_inputs; i++) one->inputs[i] = next_input(file);
    for (int i = 0; i < one->signature->num_outputs; i++) {
      one->counts[i] = next_number(file);
      one->expected[i] = calloc(one->counts[i] ? one->counts[i] : 1, sizeof(char*));
      for (long j = 0; j < one->counts[i]; j++) one->expected[i][j] = next_word(file);
    }
  }
  fclose(file);
}

static int same_string(const TF_TString* found, const char* word) {
  size_t size;
  char* bytes = bytes_of(word, &size);
  int same = TF_StringGetSize(found) == size && !memcmp(TF_StringGetDataPointer(found), bytes, size);
  free(bytes);
  return same;
}

static int is_right(const TF_Tensor* found, long count, char** expected) {
  if (TF_TensorElementCount(found) != count) return 0;
  const void* data = TF_TensorData(found);
  for (long i = 0; i < count; i++) {
    double number, right;
    switch (TF_TensorType(found)) {
      case TF_STRING:
        if (!same_string((const TF_TString*)data + i, expected[i])) return 0;
        continue;
      case TF_FLOAT: number = ((const float*)data)[i]; break;
      case TF_INT32: number = ((const int32_t*)data)[i]; break;
      case TF_BOOL: number = ((const unsigned char*)data)[i]; break;
      default: return 0;
    }
    right = atof(expected[i]);
    if (!(fabs(number - right) <= TOLERANCE * (1 + fabs(right)))) return 0; /* NaN is wrong, too */
  }
  return 1;
}

static int run(const Case* one) {
  TF_Tensor* found[MOST];
  TF_Status* status = TF_NewStatus();
  const Signature* signature = one->signature;
  TF_SessionRun(session, NULL, signature->inputs, one->inputs, signature->num_inputs, signature->outputs, found,
                signature->num_outputs, NULL, 0, NULL, status);
  check(status, signature->name);
  TF_DeleteStatus(status);
  int right = 1;
  for (int i = 0; i < signature->num_outputs; i++) {
    right &= is_right(found[i], one->counts[i], one->expected[i]);
    TF_DeleteTensor(found[i]);
  }
  return right;
}

static void* client(void* unused) {
  for (;;) {
    pthread_mutex_lock(&lock);
    long number = next_request++;
    if (number == num_requests / 4) quarter_memory = resident_kib();
    pthread_mutex_unlock(&lock);
    if (number >= num_requests) return unused;
    if (run(&cases[number % num_cases])) continue;
    pthread_mutex_lock(&lock);
    wrong++;
    pthread_mutex_unlock(&lock);
    fprintf(stderr, "wrong: signature %s, case %ld\n", cases[number % num_cases].signature->name, number % num_cases);
  }
}

int main(int count, char** arguments) {
  if (count < 5) fail(arguments[0], "EXPORT CASES THREADS REQUESTS LIBRARY...");
  TF_Status* status = TF_NewStatus();
  for (int i = 5; i < count; i++) {
    TF_LoadLibrary(arguments[i], status);
    check(status, arguments[i]);
  }
  const char* tags[] = {"serve"};
  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  session = TF_LoadSessionFromSavedModel(options, NULL, arguments[1], tags, 1, graph, NULL, status);
  check(status, arguments[1]);
  read_cases(arguments[2], graph);
  int num_threads = atoi(arguments[3]);
  num_requests = atol(arguments[4]);
  pthread_t* threads = calloc(num_threads, sizeof *threads);
  for (int i = 0; i < num_threads; i++) pthread_create(&threads[i], NULL, client, NULL);
  for (int i = 0; i < num_threads; i++) pthread_join(threads[i], NULL);
  printf("{\"requests\": %ld, \"wrong\": %ld, \"quarter_kib\": %ld, \"end_kib\": %ld}\n", num_requests, wrong,
         quarter_memory, resident_kib());
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  return 0;
}
