// tune_outcome.cpp -- the names of how measurements end.
#include "flashspan/tuning.hpp"

namespace flashspan {

const char* to_string(TuneOutcome outcome) {
  switch (outcome) {
    case TuneOutcome::measured:
      return "measured";
    case TuneOutcome::hopeless:
      return "hopeless";
    case TuneOutcome::wrong:
      return "wrong";
    case TuneOutcome::failed:
      return "failed";
    case TuneOutcome::out_of_time:
      return "out_of_time";
  }
  return "unknown";
}

}  // namespace flashspan
