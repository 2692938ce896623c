// cuDNN's graph API, as far as this network needs it: a graph is described tensor by tensor and operation by
// operation, cuDNN finds an engine that runs it as a whole, and from then on it runs with a list of pointers.
//
// Which graphs cuDNN runs without its precompiled kernels stands in the guide to its frontend, version 9.20,
// under "Generic Runtime Fusion Engines". All graphs here keep to what it lists for every GPU from compute
// capability 8.0 on ("support surface 70"), and to the alignment that makes them fast on newer ones:
//   * images are packed NHWC, of floats, and have a multiple of four channels (128 bits);
//   * a convolution or a matrix product comes first, operations on single elements follow, one sum may end
//   it;
//   * what is spread over a tensor, such as a bias, is never the first operand;
//   * sums are over images (a matrix is one of height and width 1), and pooling stands alone in its graph.
// With nothing but these engines at hand cuDNN planned and compiled each graph: 9.10 for compute
// capability 8.6, 9.27 for several from 8.0 to 12.0 (tests/examples/planned_only.cpp shows how). None has run
// on a GPU yet.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "cuda.hpp"

// n images with c channels of h rows and w columns. Packed NHWC: the channels of a pixel stand together in
// memory, then come the pixels of a row, the rows, the images.
struct Shape {
    std::int64_t n, c, h, w;

    std::size_t count() const { return static_cast<std::size_t>(n * c * h * w); }
};

// rows x columns. In memory it stands row by row, or column by column where it is the transpose of what does.
struct Matrix {
    std::int64_t rows, columns;
    bool transposed = false;
};

class Descriptor;
using Tensor = const Descriptor*;  // belongs to the graph that made it

class Graph {
public:
    // `name` is for people: the message where cuDNN has no engine for the graph.
    Graph(cudnnHandle_t cudnn, std::string name);
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    // A tensor in GPU memory. run() takes the pointers in the order of these calls.
    Tensor tensor(const Shape& shape, cudnnDataType_t type = CUDNN_DATA_FLOAT);
    Tensor tensor(const Matrix& matrix);
    // A tensor that one operation hands to the next; it never gets to memory.
    Tensor passed(const Shape& shape);
    Tensor passed(const Matrix& matrix);

    // y = x * w. From dy = d(loss)/dy to dx and dw. Stride 1, `padding` pixels on each side.
    void convolve(Tensor x, Tensor w, Tensor y, std::int64_t padding);
    void convolve_back_to_x(Tensor dy, Tensor w, Tensor dx, std::int64_t padding);
    void convolve_back_to_w(Tensor x, Tensor dy, Tensor dw, std::int64_t padding);
    // c = a b
    void multiply(Tensor a, Tensor b, Tensor c);
    // y = x + b, x - b or x b, element by element; b may be spread over x.
    void pointwise(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);
    // y = max(x, 0). From dy to dx, which is dy where y is above 0, and else 0.
    void relu(Tensor x, Tensor y);
    void relu_back(Tensor dy, Tensor y, Tensor dx);
    // y = the sum of x over all images and pixels, for each channel.
    void sum(Tensor x, Tensor y);
    // y = the largest of each 2 x 2 pixels, and `where` its place among them, a byte each. From dy to dx.
    void pool(Tensor x, Tensor y, Tensor where);
    void pool_back(Tensor dy, Tensor where, Tensor dx);

    // Lets cuDNN choose an engine. Throws std::runtime_error where it has none.
    void build();
    void run(std::initializer_list<const void*> pointers);

private:
    using Numbers = std::vector<std::int64_t>;

    Descriptor& part(cudnnBackendDescriptorType_t type);
    Tensor tensor(const Numbers& sizes, const Numbers& strides, cudnnDataType_t type, bool in_memory);
    const Descriptor* convolution(std::int64_t padding);
    const Descriptor* elementwise(cudnnPointwiseMode_t mode);
    const Descriptor* pooling();
    void add(Descriptor& operation);
    bool plan_with(cudnnBackendHeurMode_t mode, const Descriptor& graph);

    cudnnHandle_t cudnn_;
    std::string name_;
    std::vector<std::unique_ptr<Descriptor>> parts_;
    std::vector<void*> operations_;
    std::int64_t tensors_ = 0;  // how many there are; a tensor's identifier is its number
    Numbers in_memory_;         // identifiers
    const Descriptor* plan_ = nullptr;
    std::unique_ptr<Array<char>> workspace_;
};
