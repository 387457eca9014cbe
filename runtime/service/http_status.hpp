// http_status.hpp -- the HTTP statuses that a compile service answers with.
#pragma once

namespace flashspan::service {

inline constexpr int ok = 200, accepted = 202, bad_request = 400, not_found = 404, wrong_method = 405, conflict = 409,
                     does_not_compile = 422, broken = 500, unavailable = 503, too_slow = 504;

}  // namespace flashspan::service
