/* codec_out.h — outputs into the XML of the ec2 and query protocols.
 * Not here: errors (errors.h), HTTP.
 * Threads:  no state.
 * Memory:   appends to a buffer of the caller, whose limit bounds the answer.
 * Errors:   "InternalError" when the buffer's limit is passed.
 * Absent members are left out, lists that are set and empty come as an empty element; the
 * top-level lists of a Describe operation come always (clients tell "none" from "not asked" by
 * it). */
#pragma once
#include "aws/shape.h"
#include "aws/table.h"
#include "base/buf.h"
#include "base/err.h"

/* The whole answer of an operation; 'v' may be NULL when it has no output shape. */
MUST_CHECK int aws_encode(const struct aws_service *s, int op, const void *v,
                          struct str request_id, struct buf *out, struct err *err);
/* The members of one structure only. */
void aws_encode_struct(const struct aws_service *s, uint16_t shape, const void *v,
                       struct buf *out);
