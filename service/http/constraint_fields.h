// Reads the fields of OpenAI, vLLM and llama.cpp that constrain the response.
#ifndef TIDEPOOL_SERVICE_HTTP_CONSTRAINT_FIELDS_H_
#define TIDEPOOL_SERVICE_HTTP_CONSTRAINT_FIELDS_H_

#include "service/http/json_fields.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Reads response_format, structured_outputs, grammar and json_schema. At most one constraint may be
// set. The worker reports errors in the constraint itself.
void ReadConstraint(JsonFields* fields, v1::GenerateRequest* base);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_CONSTRAINT_FIELDS_H_
