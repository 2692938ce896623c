// Real handwritten digits, compiled into the program; digits.md names their source and licence.
#pragma once

#include <cstddef>
#include <vector>

constexpr int kSide = 8;  // an image is kSide rows of kSide pixels
constexpr int kPixels = kSide * kSide;
constexpr int kClasses = 10;

struct Image {
    float pixels[kPixels];  // row by row, 0 (paper) to 1 (ink)
    int label;              // 0 to 9
};

// Images laid end to end: pixels is size() x kPixels.
struct Batch {
    std::vector<float> pixels;
    std::vector<int> labels;

    std::size_t size() const { return labels.size(); }
    void add(const Image& image);
};

struct Digits {
    std::vector<Image> train;
    std::vector<Image> test;
};

// Every seventh image is a test image: 256 of 1,797. (Not every fifth or tenth: for long stretches the file
// counts from 0 to 9 and over again, so those would be one or two digits only.)
Digits load_digits();
