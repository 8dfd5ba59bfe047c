// Reads the fields of OpenAI, vLLM and llama.cpp about sampling.
#ifndef TIDEPOOL_SERVICE_HTTP_SAMPLING_FIELDS_H_
#define TIDEPOOL_SERVICE_HTTP_SAMPLING_FIELDS_H_

#include "service/http/json_fields.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Reports wrong types. CheckGenerateRequest checks the ranges.
void ReadSampling(JsonFields* fields, v1::Sampling* sampling);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_SAMPLING_FIELDS_H_
