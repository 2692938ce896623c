#include "digits.hpp"

#include <stdexcept>
#include <string>
#include <string_view>

extern "C" const char digits_begin[];
extern "C" const char digits_end[];

namespace {

constexpr std::string_view kGreys = "0123456789abcdefg";
constexpr std::size_t kLine = 2 + kPixels;  // "label pixels", without the newline
constexpr std::size_t kTestEvery = 7;

Image parse(std::string_view line) {
    if (line.size() != kLine)
        throw std::runtime_error("digits.txt: a line of " + std::to_string(line.size()));
    Image image{};
    image.label = line[0] - '0';
    for (int i = 0; i < kPixels; ++i) {
        const std::size_t grey = kGreys.find(line[2 + i]);
        if (grey == kGreys.npos)
            throw std::runtime_error("digits.txt: a pixel is not one of " + std::string(kGreys));
        image.pixels[i] = static_cast<float>(grey) / static_cast<float>(kGreys.size() - 1);
    }
    return image;
}

}  // namespace

void Batch::add(const Image& image) {
    pixels.insert(pixels.end(), image.pixels, image.pixels + kPixels);
    labels.push_back(image.label);
}

Digits load_digits() {
    Digits digits;
    std::size_t count = 0;
    for (const char* line = digits_begin; line < digits_end; line += kLine + 1) {
        const bool test = ++count % kTestEvery == 0;
        (test ? digits.test : digits.train).push_back(parse(std::string_view(line, kLine)));
    }
    return digits;
}
