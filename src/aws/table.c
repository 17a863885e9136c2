#include "aws/table.h"

#include "aws/shape.h"

static int cmp_name(const char *have, struct str want)
{
    size_t n = strlen(have);
    int r = memcmp(have, want.p, n < want.n ? n : want.n);
    return r != 0 ? r : (n == want.n ? 0 : (n < want.n ? -1 : 1));
}

/* The name of row 'i' of a table that is sorted by names; 'first' is where its rows begin. */
typedef const char *(*name_fn)(const struct aws_service *s, uint32_t first, uint32_t i);

static int find(const struct aws_service *s, uint32_t first, uint32_t n, name_fn name_of,
                struct str name)
{
    int lo = 0, hi = (int)n - 1;
    while (name.n && lo <= hi) {
        int mid = (lo + hi) / 2, r = cmp_name(name_of(s, first, (uint32_t)mid), name);
        if (r == 0) {
            return mid;
        }
        if (r < 0) {
            lo = mid + 1;
        } else {
            hi = mid - 1;
        }
    }
    return -1;
}

static const char *op_name(const struct aws_service *s, uint32_t first, uint32_t i)
{
    return aws_name(s, s->ops[first + i].name);
}

static const char *shape_name(const struct aws_service *s, uint32_t first, uint32_t i)
{
    return aws_name(s, s->shapes[first + i].name);
}

static const char *enum_name(const struct aws_service *s, uint32_t first, uint32_t i)
{
    return aws_name(s, s->enums[first + i]);
}

static const struct aws_member *nth_by_in(const struct aws_service *s, uint32_t first,
                                          uint32_t i)
{
    return &s->members[first + s->by_in[first + i]];
}

static const char *in_name(const struct aws_service *s, uint32_t first, uint32_t i)
{
    return aws_name(s, nth_by_in(s, first, i)->in);
}

int aws_op_find(const struct aws_service *s, struct str name)
{
    return find(s, 0, s->n_ops, op_name, name);
}

int aws_shape_find(const struct aws_service *s, struct str name)
{
    return find(s, 0, s->n_shapes, shape_name, name);
}

const struct aws_member *aws_member_by_in(const struct aws_service *s,
                                          const struct aws_shape *sh, struct str name)
{
    int i = find(s, sh->first, sh->n, in_name, name);
    return i < 0 ? NULL : nth_by_in(s, sh->first, (uint32_t)i);
}

const struct aws_member *aws_member_by_name(const struct aws_service *s,
                                            const struct aws_shape *sh, struct str name)
{
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        if (str_eqc(name, aws_name(s, m->name))) {
            return m;
        }
    }
    return NULL;
}

bool aws_enum_has(const struct aws_service *s, const struct aws_shape *sh, struct str value)
{
    return find(s, sh->first, sh->n, enum_name, value) >= 0;
}

size_t aws_stored_size(const struct aws_shape *sh, bool is_member)
{
    switch ((enum aws_type)sh->type) {
    case AWS_T_STR:
    case AWS_T_ENUM:
    case AWS_T_BLOB: return sizeof(struct str);
    case AWS_T_BOOL: return sizeof(struct opt_bool);
    case AWS_T_INT:
    case AWS_T_LONG: return sizeof(struct opt_i64);
    case AWS_T_FLOAT:
    case AWS_T_DOUBLE: return sizeof(struct opt_f64);
    case AWS_T_TIME: return sizeof(struct opt_time);
    case AWS_T_STRUCT: return is_member ? sizeof(void *) : sh->size;
    case AWS_T_LIST:
    case AWS_T_MAP: return sizeof(struct aws_str_list);
    }
    return 0;
}
