// A C++ backend for Triton that runs ONNX Runtime: FP32 tensors of fixed shapes.
//
// The wheels have the libraries but not their headers, so what is used of the two C interfaces
// (tritonbackend.h and onnxruntime_c_api.h) is declared here. ONNX Runtime's is a table of
// functions whose order never changes; they are taken from it by their places.

#include <cstdint>
#include <map>
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
TritonError* TRITONBACKEND_RequestInputCount(Request*, uint32_t* count);
TritonError* TRITONBACKEND_RequestInputByIndex(Request*, uint32_t index, Input**);
TritonError* TRITONBACKEND_RequestOutputCount(Request*, uint32_t* count);
TritonError* TRITONBACKEND_RequestOutputName(Request*, uint32_t index, const char** name);
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
  kSessionGetOutputCount = 31,
  kSessionGetOutputTypeInfo = 34,
  kSessionGetOutputName = 37,
  kCreateTensorWithData = 49,
  kCastTypeInfoToTensorInfo = 55,
  kGetDimensionsCount = 61,
  kGetDimensions = 62,
  kCreateCpuMemoryInfo = 69,
  kGetAllocatorWithDefaultOptions = 78,
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

struct Given {  // an output
  std::vector<int64_t> shape;
  uint64_t nbytes = sizeof(float);
};

struct State {
  void* session = nullptr;
  void* memory = nullptr;
  std::map<std::string, Given> outputs;
  std::vector<std::vector<char>> joined;  // inputs that arrive in pieces
  std::vector<const char*> taken_names, given_names;
  std::vector<void*> taken, given;

  TritonError* open(const std::string& path) {
    void *env = nullptr, *options = nullptr, *allocator = nullptr;
    TRY_ORT(kCreateEnv, 3, "triton_onnx", &env);
    TRY_ORT(kCreateSessionOptions, &options);
    TRY_ORT(kSetIntraOpNumThreads, options, 1);
    TRY_ORT(kCreateSession, env, path.c_str(), options, &session);
    TRY_ORT(kCreateCpuMemoryInfo, 0, 0, &memory);
    TRY_ORT(kGetAllocatorWithDefaultOptions, &allocator);
    size_t count = 0;
    TRY_ORT(kSessionGetOutputCount, session, &count);
    for (size_t index = 0; index < count; ++index) {
      char* name = nullptr;
      void* type = nullptr;
      const void* tensor = nullptr;
      size_t rank = 0;
      TRY_ORT(kSessionGetOutputName, session, index, allocator, &name);
      TRY_ORT(kSessionGetOutputTypeInfo, session, index, &type);
      TRY_ORT(kCastTypeInfoToTensorInfo, type, &tensor);
      TRY_ORT(kGetDimensionsCount, tensor, &rank);
      Given& output = outputs[name];
      output.shape.resize(rank);
      TRY_ORT(kGetDimensions, tensor, output.shape.data(), rank);
      for (int64_t size : output.shape) output.nbytes *= size;
    }
    return nullptr;
  }

  TritonError* fetch(Input* input, uint32_t n_buffers, std::vector<char>* pieces,
                     const void** data) {
    int memory_kind = 0;
    int64_t memory_id = 0;
    uint64_t size = 0;
    pieces->clear();
    for (uint32_t index = 0; index < n_buffers; ++index) {
      TRY(TRITONBACKEND_InputBuffer(input, index, data, &size, &memory_kind, &memory_id));
      if (n_buffers == 1) return nullptr;
      auto bytes = static_cast<const char*>(*data);
      pieces->insert(pieces->end(), bytes, bytes + size);
    }
    *data = pieces->data();
    return nullptr;
  }

  TritonError* take(Request* request) {
    uint32_t count = 0;
    TRY(TRITONBACKEND_RequestInputCount(request, &count));
    joined.resize(count);
    for (uint32_t index = 0; index < count; ++index) {
      Input* input = nullptr;
      const char* name = nullptr;
      const int64_t* shape = nullptr;
      uint32_t rank = 0, n_buffers = 0;
      uint64_t nbytes = 0;
      const void* data = nullptr;
      void* value = nullptr;
      TRY(TRITONBACKEND_RequestInputByIndex(request, index, &input));
      TRY(TRITONBACKEND_InputProperties(input, &name, nullptr, &shape, &rank, &nbytes,
                                        &n_buffers));
      TRY(fetch(input, n_buffers, &joined[index], &data));
      TRY_ORT(kCreateTensorWithData, memory, const_cast<void*>(data), size_t{nbytes}, shape,
              size_t{rank}, kOrtFloat, &value);
      taken_names.push_back(name);
      taken.push_back(value);
    }
    return nullptr;
  }

  TritonError* give(Request* request, Response* response) {
    uint32_t count = 0;
    TRY(TRITONBACKEND_RequestOutputCount(request, &count));
    for (uint32_t index = 0; index < count; ++index) {
      Output* output = nullptr;
      const char* name = nullptr;
      void *data = nullptr, *value = nullptr;
      int memory_kind = 0;
      int64_t memory_id = 0;
      TRY(TRITONBACKEND_RequestOutputName(request, index, &name));
      const Given& known = outputs[name];
      TRY(TRITONBACKEND_ResponseOutput(response, &output, name, kTritonFp32, known.shape.data(),
                                       static_cast<uint32_t>(known.shape.size())));
      TRY(TRITONBACKEND_OutputBuffer(output, &data, known.nbytes, &memory_kind, &memory_id));
      TRY_ORT(kCreateTensorWithData, memory, data, size_t{known.nbytes}, known.shape.data(),
              known.shape.size(), kOrtFloat, &value);
      given_names.push_back(name);
      given.push_back(value);
    }
    return nullptr;
  }

  TritonError* run(Request* request, Response* response) {
    TritonError* error = take(request);
    if (!error) error = give(request, response);
    if (!error) {
      OrtError failure = call(kRun, session, static_cast<void*>(nullptr), taken_names.data(),
                              taken.data(), taken.size(), given_names.data(), given.size(),
                              given.data());
      if (failure) error = failed(failure);
    }
    for (auto* values : {&taken, &given}) {
      for (void* value : *values) reinterpret_cast<void (*)(void*)>(ort[kReleaseValue])(value);
      values->clear();
    }
    taken_names.clear();
    given_names.clear();
    return error;
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
