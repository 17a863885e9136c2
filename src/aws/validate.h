/* validate.h — a decoded structure against the model: required members, enums, limits; gaps in
 * lists closed.
 * Not here: what only a handler can know.
 * Threads:  no state.
 * Memory:   changes lists in place (compaction), allocates nothing but messages.
 * Errors:   EC2 names the first thing wrong ("MissingParameter", "InvalidParameterValue");
 *           query counts them ("ValidationError"). */
#pragma once
#include "aws/shape.h"
#include "aws/table.h"
#include "base/err.h"
#include "base/macro.h"

MUST_CHECK int aws_validate(const struct aws_service *s, uint16_t shape, void *v,
                            struct err *err);
/* Removes list elements that were never set, at every depth. */
void aws_compact(const struct aws_service *s, uint16_t shape, void *v);

/* A generic view of lists and maps: all have this layout. */
struct aws_any_list {
    void *v;
    size_t n;
    bool is_set;
};
