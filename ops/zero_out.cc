// PullbackZeroOut keeps the first element of a tensor and makes the others zero. Its page is zero_out.py.

#include <algorithm>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace pullback {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

REGISTER_OP("PullbackZeroOut")
    .Attr("T: {int32, float, double}")
    .Input("x: T")
    .Output("y: T")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

template <typename T>
class ZeroOut : public OpKernel {
 public:
  explicit ZeroOut(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const int64_t size = x.NumElements();
    // Read before y is written: the two may share a buffer.
    const T first = size > 0 ? x.flat<T>()(0) : T(0);
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, x.shape(), &y));
    T* const out = y->flat<T>().data();
    constexpr int64_t kCyclesPerElement = 1;
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, size, kCyclesPerElement,
                      [out](int64_t begin, int64_t end) { std::fill(out + begin, out + end, T(0)); });
    if (size > 0) out[0] = first;
  }
};

#define REGISTER(T) \
  REGISTER_KERNEL_BUILDER(Name("PullbackZeroOut").Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), ZeroOut<T>)
REGISTER(int32_t);
REGISTER(float);
REGISTER(double);
#undef REGISTER

}  // namespace pullback
