// A C++ backend for Triton that runs ONNX Runtime: FP32 tensors of fixed shapes, "x" to "y".
//
// The wheels have the libraries but not their headers, so what is used of the two C interfaces
// (tritonbackend.h and onnxruntime_c_api.h) is declared here. ONNX Runtime's is a table of
// functions whose order never changes; they are taken from it by their places.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

struct Model;
struct Instance;
struct Request;
struct Response;
struct Input;
struct Output;
struct TritonError;

extern "C" {
TritonError* TRITONSERVER_ErrorNew(int code, const char* message);
TritonError* TRITONBACKEND_ModelRepository(Model*, int* kind, const char** folder);
TritonError* TRITONBACKEND_ModelInstanceModel(Instance*, Model**);
TritonError* TRITONBACKEND_ModelInstanceSetState(Instance*, void* state);
TritonError* TRITONBACKEND_ModelInstanceState(Instance*, void** state);
TritonError* TRITONBACKEND_RequestInput(Request*, const char* name, Input**);
TritonError* TRITONBACKEND_InputProperties(Input*, const char** name, int* datatype,
                                           const int64_t** shape, uint32_t* rank,
                                           uint64_t* nbytes, uint32_t* n_buffers);
TritonError* TRITONBACKEND_InputBuffer(Input*, uint32_t index, const void** buffer,
                                       uint64_t* nbytes, int* memory, int64_t* memory_id);
TritonError* TRITONBACKEND_ResponseNew(Response**, Request*);
TritonError* TRITONBACKEND_ResponseOutput(Response*, Output**, const char* name, int datatype,
                                          const int64_t* shape, uint32_t rank);
TritonError* TRITONBACKEND_OutputBuffer(Output*, void** buffer, uint64_t nbytes, int* memory,
                                        int64_t* memory_id);
TritonError* TRITONBACKEND_ResponseSend(Response*, uint32_t flags, TritonError*);
TritonError* TRITONBACKEND_RequestRelease(Request*, uint32_t flags);

struct OrtBase {
  void* const* (*functions)(uint32_t version);
  const char* (*version)();
};
const OrtBase* OrtGetApiBase();
}

namespace {

constexpr int kTritonFp32 = 11, kOrtFloat = 1, kInternal = 1;
constexpr uint32_t kFinal = 1, kReleaseAll = 1, kOrtVersion = 16;

using OrtError = void*;
void* const* ort = OrtGetApiBase()->functions(kOrtVersion);

template <typename... Arguments>
OrtError call(int place, Arguments... arguments) {
  return reinterpret_cast<OrtError (*)(Arguments...)>(ort[place])(arguments...);
}

// Places in ONNX Runtime's table.
enum Ort {
  kErrorMessage = 2,
  kCreateEnv = 3,
  kCreateSession = 7,
  kRun = 9,
  kCreateSessionOptions = 10,
  kSetIntraOpNumThreads = 24,
  kSessionGetOutputTypeInfo = 34,
  kCreateTensorWithData = 49,
  kCastTypeInfoToTensorInfo = 55,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kCreateCpuMemoryInfo = 69,
  kReleaseValue = 96,
};

TritonError* failed(OrtError error) {
  auto message = reinterpret_cast<const char* (*)(OrtError)>(ort[kErrorMessage])(error);
  return TRITONSERVER_ErrorNew(kInternal, message);
}

#define TRY_ORT(...) \
  if (OrtError ort_error = call(__VA_ARGS__)) return failed(ort_error)
#define TRY(expression) \
  if (TritonError* triton_error = (expression)) return triton_error

struct State {
  void* session = nullptr;
  void* memory = nullptr;
  std::vector<int64_t> shape;  // of the output
  uint64_t nbytes = sizeof(float);
  std::vector<char> joined;  // an input that arrives in pieces

  TritonError* open(const std::string& path) {
    void *env = nullptr, *options = nullptr, *type = nullptr;
    const void* tensor = nullptr;
    TRY_ORT(kCreateEnv, 3, "triton_onnx", &env);
    TRY_ORT(kCreateSessionOptions, &options);
    TRY_ORT(kSetIntraOpNumThreads, options, 1);
    TRY_ORT(kCreateSession, env, path.c_str(), options, &session);
    TRY_ORT(kCreateCpuMemoryInfo, 0, 0, &memory);
    TRY_ORT(kSessionGetOutputTypeInfo, session, size_t{0}, &type);
    TRY_ORT(kCastTypeInfoToTensorInfo, type, &tensor);
    size_t rank = 0;
    TRY_ORT(kGetDimensionsCount, tensor, &rank);
    shape.resize(rank);
    TRY_ORT(kGetDimensions, tensor, shape.data(), rank);
    for (int64_t size : shape) nbytes *= size;
    return nullptr;
  }

  TritonError* fetch(Input* input, const void** data, uint64_t* nbytes) {
    uint32_t n_buffers = 0;
    TRY(TRITONBACKEND_InputProperties(input, nullptr, nullptr, nullptr, nullptr, nbytes,
                                      &n_buffers));
    joined.clear();
    for (uint32_t index = 0; index < n_buffers; ++index) {
      int memory = 0;
      int64_t memory_id = 0;
      uint64_t size = 0;
      TRY(TRITONBACKEND_InputBuffer(input, index, data, &size, &memory, &memory_id));
      if (n_buffers == 1) return nullptr;
      auto bytes = static_cast<const char*>(*data);
      joined.insert(joined.end(), bytes, bytes + size);
    }
    *data = joined.data();
    return nullptr;
  }

  TritonError* run(Request* request, Response* response) {
    Input* input = nullptr;
    Output* output = nullptr;
    const int64_t* taken = nullptr;
    uint32_t rank = 0;
    const void* from = nullptr;
    void* to = nullptr;
    uint64_t size = 0;
    int memory_kind = 0;
    int64_t memory_id = 0;
    TRY(TRITONBACKEND_RequestInput(request, "x", &input));
    TRY(TRITONBACKEND_InputProperties(input, nullptr, nullptr, &taken, &rank, nullptr, nullptr));
    TRY(fetch(input, &from, &size));
    TRY(TRITONBACKEND_ResponseOutput(response, &output, "y", kTritonFp32, shape.data(),
                                     static_cast<uint32_t>(shape.size())));
    TRY(TRITONBACKEND_OutputBuffer(output, &to, nbytes, &memory_kind, &memory_id));
    void *x = nullptr, *y = nullptr;
    TRY_ORT(kCreateTensorWithData, memory, const_cast<void*>(from), size, taken, size_t{rank},
            kOrtFloat, &x);
    TRY_ORT(kCreateTensorWithData, memory, to, nbytes, shape.data(), shape.size(), kOrtFloat, &y);
    const char *taken_name = "x", *given_name = "y";
    OrtError error = call(kRun, session, static_cast<void*>(nullptr), &taken_name, &x, size_t{1},
                          &given_name, size_t{1}, &y);
    reinterpret_cast<void (*)(void*)>(ort[kReleaseValue])(x);
    reinterpret_cast<void (*)(void*)>(ort[kReleaseValue])(y);
    return error ? failed(error) : nullptr;
  }
};

}  // namespace

extern "C" {

TritonError* TRITONBACKEND_ModelInstanceInitialize(Instance* instance) {
  Model* model = nullptr;
  const char* folder = nullptr;
  int kind = 0;
  TRY(TRITONBACKEND_ModelInstanceModel(instance, &model));
  TRY(TRITONBACKEND_ModelRepository(model, &kind, &folder));
  auto state = new State;
  TRY(state->open(std::string(folder) + "/1/model.onnx"));
  return TRITONBACKEND_ModelInstanceSetState(instance, state);
}

TritonError* TRITONBACKEND_ModelInstanceExecute(Instance* instance, Request** requests,
                                                const uint32_t count) {
  void* state = nullptr;
  TRY(TRITONBACKEND_ModelInstanceState(instance, &state));
  for (uint32_t index = 0; index < count; ++index) {
    Response* response = nullptr;
    TRY(TRITONBACKEND_ResponseNew(&response, requests[index]));
    TritonError* error = static_cast<State*>(state)->run(requests[index], response);
    TRY(TRITONBACKEND_ResponseSend(response, kFinal, error));
    TRY(TRITONBACKEND_RequestRelease(requests[index], kReleaseAll));
  }
  return nullptr;
}

}  // extern "C"
