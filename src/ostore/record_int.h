/* record_int.h — types of fields of a head, for the two halves of record.h.
 * Not here: the structure (record.h).
 * Threads:  no state.
 * Memory:   none.
 * Errors:   none. */
#pragma once
#include "ostore/record.h"

/* Part of the format: docs/formats/object-log.md, "Head". */
enum orec_field {
    FIELD_BUCKET = 1,
    FIELD_KEY = 2,
    FIELD_VERSION = 3,
    FIELD_ORIGIN = 4,
    FIELD_OBJECT = 5,
    FIELD_SYSTEM = 6,
    FIELD_META = 7,
    FIELD_TAGS = 8,
    FIELD_CLASS = 9,
    FIELD_BODY = 10,
    FIELD_FILE = 11,
    FIELD_WRAPPED_KEY = 12,
    FIELD_PARTS = 13,
    FIELD_UPLOAD = 14,
    FIELD_WHO = 15,
    FIELD_BUCKET_NAME = 16,
    FIELD_CONF = 17,
    FIELD_NEW_KEY = 18,
    FIELD_SOURCE = 19,
    FIELD_PART_NUMBER = 20,
    FIELD_N
};
enum { FIELD_IS_NEEDED = 1, FIELD_HEAD_SIZE = 8 };
#define FIELD_BIT(t)      (1u << (t))

#define OREC_SHARDS_MAX   24u
#define OREC_WRAPPED_MAX  256u
#define OREC_ETAG_MAX     128u
#define OREC_BODY_FIELD   32u
#define OREC_FILE_FIELD   8u
#define OREC_PART_FIELD   24u
#define OREC_CONF_FIELD   8u
#define OREC_SUM_MAX      32u
#define OREC_CONF_VERSION 1u

/* Bytes of a checksum; -1: no such algorithm. */
int orec_sum_size(uint32_t alg);
/* Fields that a record of this kind must have (bits), without those that follow from values;
 * FIELD_KIND_UNKNOWN: no such kind. */
#define FIELD_KIND_UNKNOWN UINT32_MAX
uint32_t orec_fields_of(enum orec_kind kind);
/* Whether it is whole: what must be there by kind is there, and values fit. 'have': bits. */
MUST_CHECK int orec_check(const struct orec *r, uint32_t have, struct err *err);
