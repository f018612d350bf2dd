// PullbackRelu and PullbackReluGrad. The gradient of the first is registered here, in C++, and only here. Its page is
// relu.py.

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/util/work_sharder.h"

// Compile twice; the loader picks the version for the processor.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_THIS_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_THIS_PROCESSOR
#endif
// A template called by such a function must be inlined, because it cannot be compiled twice itself.
#define INLINE inline __attribute__((always_inline))

namespace pullback {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr int64_t kCyclesPerElement = 1;

REGISTER_OP("PullbackRelu")
    .Attr("T: {float, double}")
    .Input("x: T")
    .Output("y: T")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

REGISTER_OP("PullbackReluGrad")
    .Attr("T: {float, double}")
    .Input("dy: T")
    .Input("x: T")
    .Output("dx: T")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle shape;
      TF_RETURN_IF_ERROR(context->Merge(context->input(0), context->input(1), &shape));
      context->set_output(0, shape);
      return absl::OkStatus();
    });

absl::Status ReluGradient(const tensorflow::AttrSlice& attrs, tensorflow::FunctionDef* gradient) {
  *gradient = tensorflow::FunctionDefHelper::Define(
      {"x: T", "dy: T"}, {"dx: T"}, {{"T: {float, double}"}},
      {{{"dx"}, "PullbackReluGrad", {"dy", "x"}, {{"T", "$T"}}}});
  return absl::OkStatus();
}
REGISTER_OP_GRADIENT("PullbackRelu", ReluGradient);

// A NaN in x is not <= 0, so it propagates.
template <typename T>
INLINE void RectifyOf(const T* x, T* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] <= 0 ? 0 : x[i];
}

template <typename T>
INLINE void MaskOf(const T* dy, const T* x, T* dx, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) dx[i] = x[i] <= 0 ? 0 : dy[i];
}

FOR_THIS_PROCESSOR void Rectify(const float* x, float* y, int64_t begin, int64_t end) { RectifyOf(x, y, begin, end); }

FOR_THIS_PROCESSOR void Rectify(const double* x, double* y, int64_t begin, int64_t end) {
  RectifyOf(x, y, begin, end);
}

FOR_THIS_PROCESSOR void Mask(const float* dy, const float* x, float* dx, int64_t begin, int64_t end) {
  MaskOf(dy, x, dx, begin, end);
}

FOR_THIS_PROCESSOR void Mask(const double* dy, const double* x, double* dx, int64_t begin, int64_t end) {
  MaskOf(dy, x, dx, begin, end);
}

template <typename T>
class Relu : public OpKernel {
 public:
  explicit Relu(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    const T* const in = x.flat<T>().data();
    T* const out = y->flat<T>().data();
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, x.NumElements(), kCyclesPerElement,
                      [=](int64_t begin, int64_t end) { Rectify(in, out, begin, end); });
  }
};

template <typename T>
class ReluGrad : public OpKernel {
 public:
  explicit ReluGrad(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& dy = context->input(0);
    const Tensor& x = context->input(1);
    OP_REQUIRES(context, dy.shape() == x.shape(),
                absl::InvalidArgumentError(absl::StrCat("dy: expected the shape of x, ", x.shape().DebugString(),
                                                        ", got ", dy.shape().DebugString())));
    Tensor* dx = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0, 1}, 0, x.shape(), &dx));
    const T* const from = dy.flat<T>().data();
    const T* const at = x.flat<T>().data();
    T* const out = dx->flat<T>().data();
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, x.NumElements(), kCyclesPerElement,
                      [=](int64_t begin, int64_t end) { Mask(from, at, out, begin, end); });
  }
};

#define REGISTER(T)                                                                                         \
  REGISTER_KERNEL_BUILDER(Name("PullbackRelu").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), Relu<T>); \
  REGISTER_KERNEL_BUILDER(Name("PullbackReluGrad").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), ReluGrad<T>)
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace pullback
