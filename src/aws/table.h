/* table.h — layout of the const tables that tools/apigen makes from src/aws/api/<service>.api.
 * Not here: what reads them (codec_in, codec_out), the C structures (aws/api/<service>.h).
 * Names are offsets into one string pool per service: no pointers, so no relocations, and pages
 * are shared between processes.
 * Threads:  const.
 * Memory:   static.
 * Errors:   none. */
#pragma once
#include "base/str.h"
#include <stdint.h>

enum aws_type {
    AWS_T_STR,    /* struct str */
    AWS_T_ENUM,   /* struct str */
    AWS_T_BOOL,   /* struct opt_bool */
    AWS_T_INT,    /* struct opt_i64, 32 bits on the wire */
    AWS_T_LONG,   /* struct opt_i64 */
    AWS_T_FLOAT,  /* struct opt_f64 */
    AWS_T_DOUBLE, /* struct opt_f64 */
    AWS_T_TIME,   /* struct opt_time */
    AWS_T_BLOB,   /* struct str, base64 on the wire */
    AWS_T_STRUCT, /* a pointer in structures, in line in lists and maps */
    AWS_T_LIST,   /* {T *v; size_t n; bool is_set;} */
    AWS_T_MAP     /* the same with entries {struct str key; T value;} */
};

enum { AWS_SHAPE_NONE = 0xffff };

/* Flags of members and of shapes; the format of a time is (flags & AWS_F_TS) >> 3. */
enum {
    AWS_F_REQUIRED = 1,
    AWS_F_TOKEN = 2, /* idempotency token */
    AWS_F_FLAT = 4,
    AWS_F_TS = 0x18,
    AWS_F_SENSITIVE = 0x20,
    AWS_F_OPEN_ENUM =
        0x40,              /* other values than the model's are good too: the handler decides */
    AWS_F_HAS_ATTR = 0x80, /* REST, of structures: a member is an XML attribute */
    /* REST, of members */
    AWS_F_PAYLOAD = 0x80, /* is the whole body */
    AWS_F_STREAM = 0x100, /* the body's bytes never come into memory */
    AWS_F_ATTR = 0x200,   /* an XML attribute */
};
enum aws_loc { /* REST: where a member travels */
               AWS_LOC_BODY,
               AWS_LOC_URI,
               AWS_LOC_QUERY,
               AWS_LOC_HEADER,
               AWS_LOC_HEADERS, /* a map: its name is the prefix of the headers */
               AWS_LOC_STATUS
};
enum { AWS_TS_DEFAULT = 0, AWS_TS_ISO = 1, AWS_TS_UNIX = 2, AWS_TS_RFC822 = 3 };

struct aws_member {
    uint32_t name;    /* as the model spells it */
    uint32_t in, out; /* on the wire; 'in' of headers is in lower case */
    uint16_t off, shape, flags;
    uint8_t loc; /* enum aws_loc */
};

struct aws_shape {
    uint32_t name;
    uint32_t el_in, el_out; /* list: name of elements; map: names of key and value */
    /* struct: its first row of members and of by_in; enum: its first row of enums */
    uint32_t first;
    uint32_t size;      /* struct: of the structure; list and map: of an element */
    uint16_t n;         /* members or values */
    uint16_t elem, key; /* shapes, or AWS_SHAPE_NONE */
    uint16_t limit;     /* row of limits, 0 = none */
    uint8_t type, flags;
};

struct aws_limit { /* of a number's value, a text's code points, a list's length */
    double min, max;
    uint32_t pattern; /* regular expression of the model, "" = none */
    uint8_t has_min, has_max;
};

enum aws_op_state { AWS_OP_NO, AWS_OP_PARTIAL, AWS_OP_FULL };

struct aws_op {
    uint32_t name, wrap; /* wrap: the result element of the query protocol */
    uint32_t resources;  /* templates of what it touches, "" = everything ("*") */
    uint32_t token_in, token_out, limit; /* members of the paginator, "" = none */
    uint16_t in, out;                    /* shapes, or AWS_SHAPE_NONE */
    uint8_t state, is_unsigned;
    /* REST; 'wrap' is the root element of the answer */
    uint32_t uri, action;       /* "/{Bucket}?cors"; what policies call it: "ListBucket", or
                               "GetObject/GetObjectVersion" (the latter for a version) */
    uint32_t root_in;           /* root element of the request's XML, "" = no XML */
    uint32_t sum_member;        /* names the checksum's algorithm */
    uint16_t status;            /* of success */
    uint8_t method, rest_flags; /* enum aws_method; AWS_REST_... */
};

enum aws_method { AWS_M_GET, AWS_M_HEAD, AWS_M_PUT, AWS_M_POST, AWS_M_DELETE, AWS_M_N };
enum {
    AWS_REST_SUM = 1,          /* may carry a checksum of its body */
    AWS_REST_SUM_REQUIRED = 2, /* must */
    AWS_REST_STREAM_IN = 4,
    AWS_REST_STREAM_OUT = 8
};

/* What makes a request this operation, beside level, method and sub-resource. */
enum { AWS_NEED_UPLOAD_ID = 1, AWS_NEED_PART = 2, AWS_NEED_ID = 4, AWS_NEED_SOURCE = 8 };
struct aws_route {       /* sorted by level and sub */
    uint32_t sub, value; /* "list-type", "2" */
    uint16_t op;
    uint8_t level; /* 0 service, 1 bucket, 2 object */
    uint8_t method, needs;
};

struct aws_error_row {
    uint32_t code;
    uint16_t status;
};

enum aws_protocol {
    AWS_PROTOCOL_EC2,
    AWS_PROTOCOL_QUERY,
    AWS_PROTOCOL_REST_XML,
    AWS_PROTOCOL_REST_JSON
};

struct aws_service {
    const char *name, *version, *xmlns, *signing, *id;
    enum aws_protocol protocol;
    const char *pool;
    const struct aws_member *members;
    const uint16_t *by_in; /* per structure: member numbers sorted by input name */
    const uint32_t *enums; /* sorted per enum */
    const struct aws_limit *limits;
    const struct aws_shape *shapes; /* sorted by name */
    const struct aws_op *ops;       /* sorted by name; the index is enum <service>_op */
    const struct aws_error_row *errors;
    const struct aws_route *routes; /* REST */
    uint16_t n_shapes, n_ops, n_errors, n_routes;
    uint32_t pool_size, rodata_size;
};

static inline const char *aws_name(const struct aws_service *s, uint32_t at)
{
    return s->pool + at;
}
/* Index of the operation, or -1. */
int aws_op_find(const struct aws_service *s, struct str name);
/* Index of the shape, or -1. */
int aws_shape_find(const struct aws_service *s, struct str name);
/* The member whose input name is 'name' (exact case), or NULL. */
const struct aws_member *aws_member_by_in(const struct aws_service *s,
                                          const struct aws_shape *sh, struct str name);
/* The member as the model spells it, or NULL. */
const struct aws_member *aws_member_by_name(const struct aws_service *s,
                                            const struct aws_shape *sh, struct str name);
bool aws_enum_has(const struct aws_service *s, const struct aws_shape *sh, struct str value);
/* Bytes that a member or element of this shape takes where it is stored (a structure in a
 * structure is a pointer). */
size_t aws_stored_size(const struct aws_shape *sh, bool is_member);
