// The keys of config.json that describe experts, for each family that has them. Implementation
// detail of families.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_EXPERT_KEYS_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_EXPERT_KEYS_H_

#include "engine/checkpoint/hf/families.h"

namespace tidepool::engine::hf {

inline constexpr ExpertKeys kMixtralExperts = {.count = "num_local_experts",
                                               .width = "intermediate_size"};
inline constexpr ExpertKeys kQwen2MoeExperts = {.count = "num_experts",
                                                .other_count = "num_local_experts",
                                                .width = "moe_intermediate_size",
                                                .shared_width = "shared_expert_intermediate_size",
                                                .shared_part = Part::kSharedExpert,
                                                .normalize = "norm_topk_prob",
                                                .interval = "decoder_sparse_step",
                                                .own_width = true};
inline constexpr ExpertKeys kQwen3MoeExperts = {.count = "num_experts",
                                                .other_count = "num_local_experts",
                                                .width = "moe_intermediate_size",
                                                .normalize = "norm_topk_prob",
                                                .interval = "decoder_sparse_step",
                                                .own_width = true};
inline constexpr ExpertKeys kQwen3VlMoeExperts = {.count = "num_experts",
                                                  .other_count = "num_local_experts",
                                                  .width = "moe_intermediate_size",
                                                  .interval = "decoder_sparse_step",
                                                  .own_width = true};
inline constexpr ExpertKeys kQwen3NextExperts = {.count = "num_experts",
                                                 .other_count = "num_local_experts",
                                                 .width = "moe_intermediate_size",
                                                 .shared_width = "shared_expert_intermediate_size",
                                                 .shared_part = Part::kSharedExpert,
                                                 .normalize = "norm_topk_prob",
                                                 .interval = "decoder_sparse_step",
                                                 .own_width = true};
inline constexpr ExpertKeys kQwen35Experts = {.count = "num_experts",
                                              .other_count = "num_local_experts",
                                              .width = "moe_intermediate_size",
                                              .shared_width = "shared_expert_intermediate_size",
                                              .shared_part = Part::kSharedExpert,
                                              .own_width = true};
inline constexpr ExpertKeys kLfm2Experts = {.count = "num_experts",
                                            .other_count = "num_local_experts",
                                            .width = "moe_intermediate_size",
                                            .normalize = "norm_topk_prob",
                                            .scale = "routed_scaling_factor",
                                            .gating = 2,
                                            .first_sparse = "num_dense_layers",
                                            .own_width = true};
inline constexpr ExpertKeys kOlmoeExperts = {.count = "num_experts",
                                             .other_count = "num_local_experts",
                                             .width = "intermediate_size",
                                             .normalize = "norm_topk_prob"};
inline constexpr ExpertKeys kGraniteExperts = {.count = "num_local_experts",
                                               .width = "intermediate_size"};
inline constexpr ExpertKeys kGraniteSharedExperts = {.count = "num_local_experts",
                                                     .width = "intermediate_size",
                                                     .shared_width = "shared_intermediate_size",
                                                     .shared_part = Part::kGraniteShared};
inline constexpr ExpertKeys kErnieExperts = {.count = "moe_num_experts",
                                             .used = "moe_k",
                                             .width = "moe_intermediate_size",
                                             .shared_count = "moe_num_shared_experts",
                                             .shared_part = Part::kSharedExperts,
                                             .first_sparse = "moe_layer_start_index",
                                             .interval = "moe_layer_interval",
                                             .own_width = true};
inline constexpr ExpertKeys kHunyuanExperts = {.count = "num_experts",
                                               .other_count = "num_local_experts",
                                               .used = "moe_topk",
                                               .width = "intermediate_size",
                                               .shared_count = "num_shared_expert",
                                               .shared_part = Part::kSharedMlp};
inline constexpr ExpertKeys kSigmoidExperts = {.count = "n_routed_experts",
                                               .other_count = "num_local_experts",
                                               .width = "moe_intermediate_size",
                                               .shared_count = "n_shared_experts",
                                               .shared_part = Part::kSharedExperts,
                                               .normalize = "norm_topk_prob",
                                               .scale = "routed_scaling_factor",
                                               .groups = true,
                                               .gating = 2,
                                               .first_sparse = "first_k_dense_replace",
                                               .own_width = true};
inline constexpr ExpertKeys kDeepseek2Experts = {.count = "n_routed_experts",
                                                 .other_count = "num_experts",
                                                 .width = "moe_intermediate_size",
                                                 .shared_count = "n_shared_experts",
                                                 .shared_part = Part::kSharedExperts,
                                                 .scale = "routed_scaling_factor",
                                                 .groups = true,
                                                 .gating = 1,
                                                 .first_sparse = "first_k_dense_replace",
                                                 .own_width = true};

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_EXPERT_KEYS_H_
