// PullbackZeroOutIndexed is PullbackZeroOut with a second output: the flat index of the kept element, or -1 if
// there is none. Its page is zero_out_indexed.py.

#include <algorithm>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/util/work_sharder.h"

namespace pullback {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::shape_inference::InferenceContext;

REGISTER_OP("PullbackZeroOutIndexed")
    .Attr("T: {int32, float, double}")
    .Input("x: T")
    .Output("y: T")
    .Output("index: int32")
    .SetShapeFn([](InferenceContext* context) {
      context->set_output(0, context->input(0));
      context->set_output(1, context->Scalar());
      return absl::OkStatus();
    });

template <typename T>
class ZeroOutIndexed : public OpKernel {
 public:
  explicit ZeroOutIndexed(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const int64_t size = x.NumElements();
    // Read before y is written: the two may share a buffer.
    const T first = size > 0 ? x.flat<T>()(0) : T(0);
    Tensor* y = nullptr;
    Tensor* index = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    OP_REQUIRES_OK(context, context->allocate_output(1, {}, &index));
    T* const out = y->flat<T>().data();
    constexpr int64_t kCyclesPerElement = 1;
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, size, kCyclesPerElement,
                      [out](int64_t begin, int64_t end) { std::fill(out + begin, out + end, T(0)); });
    if (size > 0) out[0] = first;
    index->scalar<int32_t>()() = size > 0 ? 0 : -1;
  }
};

#define REGISTER(T)                                                                                    \
  REGISTER_KERNEL_BUILDER(                                                                             \
      Name("PullbackZeroOutIndexed").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), ZeroOutIndexed<T>)
REGISTER(int32_t);
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace pullback
