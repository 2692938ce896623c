// Random numbers that are the same on every machine: the standard fixes what std::mt19937 yields, but not
// what its distributions and std::shuffle make of it.
#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <utility>
#include <vector>

class Random {
public:
    explicit Random(unsigned seed) : engine_(seed) {}

    // A number in [-limit, limit).
    float uniform(float limit) {
        return (static_cast<float>(engine_() >> 8) / static_cast<float>(1 << 23) - 1.0F) * limit;
    }

    // First weights of a layer with `inputs` inputs before a ReLU (He et al. 2015: variance 2 / inputs).
    std::vector<float> weights(std::size_t count, int inputs) {
        const float limit = std::sqrt(6.0F / static_cast<float>(inputs));
        std::vector<float> values(count);
        for (float& value : values) value = uniform(limit);
        return values;
    }

    template <typename T>
    void shuffle(std::vector<T>& values) {
        for (std::size_t left = values.size(); left > 1; --left) {
            std::swap(values[left - 1], values[engine_() % left]);
        }
    }

private:
    std::mt19937 engine_;
};
