/* pattern.h — the regular expressions of service models, as far as they are sequences of
 * character classes.
 * Not here: groups, alternatives, look-ahead: such a pattern is not judged (handlers that need
 *           it check by hand).
 * Threads:  no state.
 * Memory:   a little on the heap while it runs.
 * Errors:   none. Time is bounded: past four million steps the answer is "unknown". */
#pragma once
#include "base/str.h"

enum pattern_verdict { PATTERN_MATCHES, PATTERN_DIFFERS, PATTERN_UNKNOWN };

/* Does all of 's' (UTF-8) match? */
enum pattern_verdict pattern_match(const char *pattern, struct str s);
