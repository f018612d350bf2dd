// PullbackRoiPool and its linear maps: PullbackRoiPoolGrad scatters cotangents to the cells that were the maxima, and
// PullbackRoiPoolTake, its transpose, gathers the values of those cells. The page, roi_pool.py, states the semantics.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
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
using tensorflow::TensorShape;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Scaled coordinates beyond this are outside any feature map, and sums of two of them must not overflow.
constexpr double kFarthest = 1 << 30;
// The number of channels to scatter together: at least a cache line of floats, which two shards must not share; at most
// as many as stay in the cache, for the part of the image below the regions.
constexpr int64_t kFewestChannels = 16, kMostChannels = 64;

// The shape [R, pooled_height, pooled_width, C] of pooled: R from rois, input 1; C from a shape [N, H, W, C].
absl::Status PooledShape(InferenceContext* context, ShapeHandle features, ShapeHandle* pooled) {
  ShapeHandle rois;
  DimensionHandle five;
  TF_RETURN_IF_ERROR(context->WithRank(context->input(1), 2, &rois));
  TF_RETURN_IF_ERROR(context->WithValue(context->Dim(rois, 1), 5, &five));
  int32_t height = 0, width = 0;
  TF_RETURN_IF_ERROR(context->GetAttr("pooled_height", &height));
  TF_RETURN_IF_ERROR(context->GetAttr("pooled_width", &width));
  *pooled = context->MakeShape(
      {context->Dim(rois, 0), context->MakeDim(height), context->MakeDim(width), context->Dim(features, 3)});
  return absl::OkStatus();
}

#define ROI_POOL_ATTRS                \
  Attr("T: {float, double}")          \
      .Attr("pooled_height: int >= 1") \
      .Attr("pooled_width: int >= 1")  \
      .Attr("spatial_scale: float = 1.0")

REGISTER_OP("PullbackRoiPool")
    .ROI_POOL_ATTRS.Input("features: T")
    .Input("rois: T")
    .Output("pooled: T")
    .Output("argmax: int32")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle features, pooled;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 4, &features));
      TF_RETURN_IF_ERROR(PooledShape(context, features, &pooled));
      context->set_output(0, pooled);
      context->set_output(1, pooled);
      return absl::OkStatus();
    });

REGISTER_OP("PullbackRoiPoolGrad")
    .ROI_POOL_ATTRS.Input("features: T")
    .Input("rois: T")
    .Input("argmax: int32")
    .Input("dy: T")
    .Output("dx: T")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle features, pooled;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 4, &features));
      TF_RETURN_IF_ERROR(PooledShape(context, features, &pooled));
      TF_RETURN_IF_ERROR(context->Merge(pooled, context->input(2), &pooled));
      TF_RETURN_IF_ERROR(context->Merge(pooled, context->input(3), &pooled));
      context->set_output(0, features);
      return absl::OkStatus();
    });

REGISTER_OP("PullbackRoiPoolTake")
    .ROI_POOL_ATTRS.Input("x: T")
    .Input("rois: T")
    .Input("argmax: int32")
    .Output("y: T")
    .SetShapeFn([](InferenceContext* context) {
      ShapeHandle x, pooled;
      TF_RETURN_IF_ERROR(context->WithRank(context->input(0), 4, &x));
      TF_RETURN_IF_ERROR(PooledShape(context, x, &pooled));
      TF_RETURN_IF_ERROR(context->Merge(pooled, context->input(2), &pooled));
      context->set_output(0, pooled);
      return absl::OkStatus();
    });

// The place of a roi: its image, its first cell, and the number of cells it spans; it may reach over the edges.
struct Region {
  int64_t image, top, left, height, width;
};

// Cells of an image, from `first` up to but not including `last`.
struct Range {
  int64_t first, last;
};

// The cells of bin `i` of `bins` in a roi that starts at `start` and spans `length`, cut off at the edges 0 and `size`.
Range BinCells(int64_t i, int64_t bins, int64_t start, int64_t length, int64_t size) {
  const int64_t first = start + i * length / bins;
  const int64_t last = start + ((i + 1) * length + bins - 1) / bins;
  return {std::clamp<int64_t>(first, 0, size), std::clamp<int64_t>(last, 0, size)};
}

// The base of the three kernels: their attributes, and the checks of features, rois and argmax.
class RoiPoolKernel : public OpKernel {
 public:
  explicit RoiPoolKernel(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("pooled_height", &pooled_height_));
    OP_REQUIRES_OK(context, context->GetAttr("pooled_width", &pooled_width_));
    OP_REQUIRES_OK(context, context->GetAttr("spatial_scale", &spatial_scale_));
    OP_REQUIRES(context, pooled_height_ < kFarthest && pooled_width_ < kFarthest,
                absl::InvalidArgumentError(absl::StrCat("pooled size: expected less than 2^30, got ", pooled_height_,
                                                        " x ", pooled_width_)));
  }

 protected:
  int64_t Bins() const { return int64_t{pooled_height_} * pooled_width_; }

  absl::Status CheckFeatures(const Tensor& features) const {
    if (features.dims() != 4) {
      return absl::InvalidArgumentError(
          absl::StrCat("features: expected rank 4, [N, H, W, C], got ", features.shape().DebugString()));
    }
    if (features.dim_size(1) * features.dim_size(2) > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("features: expected H * W below 2^31, got ",
                                                     features.dim_size(1), " * ", features.dim_size(2)));
    }
    return absl::OkStatus();
  }

  absl::Status CheckPooled(const char* name, const Tensor& tensor, const TensorShape& pooled) const {
    if (tensor.shape() == pooled) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": expected shape ", pooled.DebugString(), ", got ", tensor.shape().DebugString()));
  }

  absl::Status PooledShapeOf(int64_t rois, int64_t channels, TensorShape* shape) const {
    return TensorShape::BuildTensorShape({rois, pooled_height_, pooled_width_, channels}, shape);
  }

  template <typename T>
  absl::Status Regions(const Tensor& rois, int64_t images, std::vector<Region>* regions) const {
    if (rois.dims() != 2 || rois.dim_size(1) != 5) {
      return absl::InvalidArgumentError(
          absl::StrCat("rois: expected shape [R, 5], rows of (image, x1, y1, x2, y2), got ",
                       rois.shape().DebugString()));
    }
    const auto rows = rois.matrix<T>();
    regions->resize(rois.dim_size(0));
    for (int64_t i = 0; i < rois.dim_size(0); ++i) {
      const double image = rows(i, 0);
      // The condition also refuses NaN.
      if (!(image >= 0 && image < images && image == std::floor(image))) {
        return absl::InvalidArgumentError(
            absl::StrCat("rois: expected the index of one of ", images, " images at [", i, ", 0], got ", image));
      }
      int64_t cells[4];
      for (int j = 0; j < 4; ++j) {
        const T scaled = rows(i, j + 1) * static_cast<T>(spatial_scale_);
        if (!(std::abs(scaled) <= kFarthest)) {
          return absl::InvalidArgumentError(absl::StrCat("rois: expected a coordinate within 2^30 cells at [", i, ", ",
                                                         j + 1, "], got ", rows(i, j + 1)));
        }
        cells[j] = std::llround(scaled);
      }
      (*regions)[i] = {static_cast<int64_t>(image), cells[1], cells[0], std::max<int64_t>(cells[3] - cells[1] + 1, 1),
                       std::max<int64_t>(cells[2] - cells[0] + 1, 1)};
    }
    return absl::OkStatus();
  }

  int32_t pooled_height_ = 0;
  int32_t pooled_width_ = 0;

 private:
  float spatial_scale_ = 1.0f;
};

// An integer as wide as T, for the lanes of a vector of T.
template <typename T>
using Lane = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// The maxima of a bin for `channels` channels, and the cell of each; of equal ones the first, and a NaN counts as the
// largest. `image` is the first cell of the image, with rows of `width` cells of `channels` numbers each.
template <typename T>
INLINE void PoolBinOf(const T* image, int64_t width, int64_t channels, Range rows, Range columns, T* pooled,
                      int32_t* argmax) {
  typedef T Values __attribute__((vector_size(32)));
  typedef Lane<T> Cells __attribute__((vector_size(32)));
  // Four vectors at a time, which stay in registers from cell to cell.
  constexpr int64_t kLanes = 32 / sizeof(T), kVectors = 4, kStep = kVectors * kLanes;
  const int64_t start = rows.first * width + columns.first;
  int64_t c = 0;
  for (; c + kStep <= channels; c += kStep) {
    Values best[kVectors];
    std::memcpy(best, image + start * channels + c, sizeof(best));
    const Cells first = Cells{} + static_cast<Lane<T>>(start);
    Cells where[kVectors] = {first, first, first, first};
    for (int64_t row = rows.first; row < rows.last; ++row) {
      for (int64_t cell = row * width + columns.first; cell < row * width + columns.last; ++cell) {
        for (int v = 0; v < kVectors; ++v) {
          Values x;
          std::memcpy(&x, image + cell * channels + c + v * kLanes, sizeof(x));
          const Cells larger = ~(best[v] >= x) & (best[v] == best[v]);
          best[v] = larger ? x : best[v];
          where[v] = larger ? Cells{} + static_cast<Lane<T>>(cell) : where[v];
        }
      }
    }
    std::memcpy(pooled + c, best, sizeof(best));
    for (int64_t i = 0; i < kStep; ++i) argmax[c + i] = static_cast<int32_t>(where[i / kLanes][i % kLanes]);
  }
  for (; c < channels; ++c) {
    int64_t where = start;
    T best = image[start * channels + c];
    for (int64_t row = rows.first; row < rows.last; ++row) {
      for (int64_t cell = row * width + columns.first; cell < row * width + columns.last; ++cell) {
        const T x = image[cell * channels + c];
        if (!(best >= x) && best == best) {
          best = x;
          where = cell;
        }
      }
    }
    pooled[c] = best;
    argmax[c] = static_cast<int32_t>(where);
  }
}

FOR_THIS_PROCESSOR void PoolBin(const float* image, int64_t width, int64_t channels, Range rows, Range columns,
                                float* pooled, int32_t* argmax) {
  PoolBinOf(image, width, channels, rows, columns, pooled, argmax);
}

FOR_THIS_PROCESSOR void PoolBin(const double* image, int64_t width, int64_t channels, Range rows, Range columns,
                                double* pooled, int32_t* argmax) {
  PoolBinOf(image, width, channels, rows, columns, pooled, argmax);
}

template <typename T>
class RoiPool : public RoiPoolKernel {
 public:
  using RoiPoolKernel::RoiPoolKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& features = context->input(0);
    const Tensor& rois = context->input(1);
    OP_REQUIRES_OK(context, CheckFeatures(features));
    std::vector<Region> regions;
    OP_REQUIRES_OK(context, Regions<T>(rois, features.dim_size(0), &regions));
    const int64_t height = features.dim_size(1), width = features.dim_size(2), channels = features.dim_size(3);
    TensorShape shape;
    OP_REQUIRES_OK(context, PooledShapeOf(rois.dim_size(0), channels, &shape));
    Tensor* pooled = nullptr;
    Tensor* argmax = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &pooled));
    OP_REQUIRES_OK(context, context->allocate_output(1, shape, &argmax));
    const T* const in = features.flat<T>().data();
    T* const out = pooled->flat<T>().data();
    int32_t* const cells = argmax->flat<int32_t>().data();

    const auto pool = [&](int64_t begin, int64_t end) {
      for (int64_t bin = begin; bin < end; ++bin) {
        const Region& roi = regions[bin / Bins()];
        const int64_t row = bin % Bins() / pooled_width_, column = bin % pooled_width_;
        const Range rows = BinCells(row, pooled_height_, roi.top, roi.height, height);
        const Range columns = BinCells(column, pooled_width_, roi.left, roi.width, width);
        if (rows.first >= rows.last || columns.first >= columns.last) {
          std::fill_n(out + bin * channels, channels, T(0));
          std::fill_n(cells + bin * channels, channels, -1);
        } else {
          PoolBin(in + roi.image * height * width * channels, width, channels, rows, columns, out + bin * channels,
                  cells + bin * channels);
        }
      }
    };
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, rois.dim_size(0) * Bins(),
                      channels * CellsOfABin(regions, height, width), pool);
  }

 private:
  // The cost of a bin: its average number of cells, and one for the bin itself.
  int64_t CellsOfABin(const std::vector<Region>& regions, int64_t height, int64_t width) const {
    int64_t cells = 0;
    for (const Region& roi : regions) cells += std::min(roi.height, height) * std::min(roi.width, width);
    return 1 + cells / std::max<int64_t>(1, regions.size() * Bins());
  }
};

template <typename T>
class RoiPoolGrad : public RoiPoolKernel {
 public:
  using RoiPoolKernel::RoiPoolKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& features = context->input(0);
    const Tensor& rois = context->input(1);
    const Tensor& argmax = context->input(2);
    const Tensor& dy = context->input(3);
    OP_REQUIRES_OK(context, CheckFeatures(features));
    std::vector<Region> regions;
    OP_REQUIRES_OK(context, Regions<T>(rois, features.dim_size(0), &regions));
    const int64_t area = features.dim_size(1) * features.dim_size(2), channels = features.dim_size(3);
    TensorShape shape;
    OP_REQUIRES_OK(context, PooledShapeOf(rois.dim_size(0), channels, &shape));
    OP_REQUIRES_OK(context, CheckPooled("argmax", argmax, shape));
    OP_REQUIRES_OK(context, CheckPooled("dy", dy, shape));
    Tensor* dx = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, features.shape(), &dx));
    T* const out = dx->flat<T>().data();
    const T* const from = dy.flat<T>().data();
    const int32_t* const cells = argmax.flat<int32_t>().data();
    const int64_t bins = Bins();

    // Each shard has its own channels, so no two shards write to the same number, and each number is summed in the
    // order of the rois, however many threads there are.
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    const int64_t share = channels / workers.num_threads / kFewestChannels * kFewestChannels;
    const int64_t block = std::clamp(share, kFewestChannels, kMostChannels);
    std::atomic<bool> outside{false};
    const auto scatter = [&](int64_t begin, int64_t end) {
      for (int64_t first = begin * block; first < std::min(end * block, channels); first += block) {
        const int64_t last = std::min(first + block, channels);
        for (int64_t roi = 0; roi < static_cast<int64_t>(regions.size()); ++roi) {
          T* const image = out + regions[roi].image * area * channels;
          for (int64_t bin = roi * bins; bin < (roi + 1) * bins; ++bin) {
            for (int64_t c = first; c < last; ++c) {
              const int64_t cell = cells[bin * channels + c];
              if (cell >= 0 && cell < area) {
                image[cell * channels + c] += from[bin * channels + c];
              } else if (cell != -1) {
                outside = true;
              }
            }
          }
        }
      }
    };
    tensorflow::Shard(workers.num_threads, workers.workers, dx->NumElements(), 1,
                      [out](int64_t begin, int64_t end) { std::fill(out + begin, out + end, T(0)); });
    constexpr int64_t kCyclesOfAnAddition = 4;
    tensorflow::Shard(workers.num_threads, workers.workers, (channels + block - 1) / block,
                      kCyclesOfAnAddition * block * rois.dim_size(0) * bins, scatter);
    OP_REQUIRES(context, !outside,
                absl::InvalidArgumentError(absl::StrCat("argmax: expected -1 or a cell in 0..", area - 1)));
  }
};

template <typename T>
class RoiPoolTake : public RoiPoolKernel {
 public:
  using RoiPoolKernel::RoiPoolKernel;

  void Compute(OpKernelContext* context) override {
    const Tensor& x = context->input(0);
    const Tensor& rois = context->input(1);
    const Tensor& argmax = context->input(2);
    OP_REQUIRES_OK(context, CheckFeatures(x));
    std::vector<Region> regions;
    OP_REQUIRES_OK(context, Regions<T>(rois, x.dim_size(0), &regions));
    const int64_t area = x.dim_size(1) * x.dim_size(2), channels = x.dim_size(3);
    TensorShape shape;
    OP_REQUIRES_OK(context, PooledShapeOf(rois.dim_size(0), channels, &shape));
    OP_REQUIRES_OK(context, CheckPooled("argmax", argmax, shape));
    Tensor* y = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &y));
    const T* const in = x.flat<T>().data();
    const int32_t* const cells = argmax.flat<int32_t>().data();
    T* const out = y->flat<T>().data();

    std::atomic<bool> outside{false};
    const auto take = [&](int64_t begin, int64_t end) {
      for (int64_t bin = begin; bin < end; ++bin) {
        const T* const image = in + regions[bin / Bins()].image * area * channels;
        for (int64_t c = 0; c < channels; ++c) {
          const int64_t cell = cells[bin * channels + c];
          const bool inside = cell >= 0 && cell < area;
          out[bin * channels + c] = inside ? image[cell * channels + c] : T(0);
          if (!inside && cell != -1) outside = true;
        }
      }
    };
    constexpr int64_t kCyclesOfANumber = 4;
    const auto& workers = *context->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers.num_threads, workers.workers, rois.dim_size(0) * Bins(), kCyclesOfANumber * channels,
                      take);
    OP_REQUIRES(context, !outside,
                absl::InvalidArgumentError(absl::StrCat("argmax: expected -1 or a cell in 0..", area - 1)));
  }
};

#define REGISTER_KERNEL(NAME, T) \
  REGISTER_KERNEL_BUILDER(       \
      Name("Pullback" #NAME).Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), NAME<T>)
#define REGISTER(T)                \
  REGISTER_KERNEL(RoiPool, T);     \
  REGISTER_KERNEL(RoiPoolGrad, T); \
  REGISTER_KERNEL(RoiPoolTake, T)
REGISTER(float);
REGISTER(double);
#undef REGISTER
#undef REGISTER_KERNEL

}  // namespace pullback
