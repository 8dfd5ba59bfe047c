// Quantises super-blocks of 256 elements: Q4_K, Q5_K and Q6_K. Implementation detail of Quantize.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_K_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_K_H_

#include <cstdint>

namespace tidepool::engine::quantize {

// Each function reads 256 elements and writes one block.
void QuantizeQ4_K(const float* x, uint8_t* block);
void QuantizeQ5_K(const float* x, uint8_t* block);
void QuantizeQ6_K(const float* x, uint8_t* block);

}  // namespace tidepool::engine::quantize

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_K_H_
