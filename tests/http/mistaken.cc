// Ops y = x with a second, integer output, for gradients with mistakes: tests/http/mistaken.py.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace mistaken {

class Same : public tensorflow::OpKernel {
 public:
  explicit Same(tensorflow::OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(tensorflow::OpKernelContext* context) override {
    context->set_output(0, context->input(0));
    tensorflow::Tensor* index = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(1, {}, &index));
    index->scalar<int32_t>()() = 0;
  }
};

#define MISTAKEN(NAME)                                                              \
  REGISTER_OP(NAME)                                                                 \
      .Input("x: float")                                                            \
      .Output("y: float")                                                           \
      .Output("index: int32")                                                       \
      .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {      \
        context->set_output(0, context->input(0));                                  \
        context->set_output(1, context->Scalar());                                  \
        return absl::OkStatus();                                                    \
      });                                                                           \
  REGISTER_KERNEL_BUILDER(Name(NAME).Device(tensorflow::DEVICE_CPU), Same)

MISTAKEN("MistakenTooFew");
MISTAKEN("MistakenNotRegistered");
MISTAKEN("MistakenInt");
MISTAKEN("MistakenTooFewChecked");
MISTAKEN("MistakenIntChecked");

}  // namespace mistaken
