#include "aws/table.h"

#include "aws/shape.h"

static int cmp_name(const char *have, struct str want)
{
    size_t n = strlen(have);
    int r = memcmp(have, want.p, n < want.n ? n : want.n);
    return r != 0 ? r : (n == want.n ? 0 : (n < want.n ? -1 : 1));
}

int aws_op_find(const struct aws_service *s, struct str name)
{
    int lo = 0, hi = (int)s->n_ops - 1;
    while (name.n && lo <= hi) {
        int mid = (lo + hi) / 2, r = cmp_name(aws_name(s, s->ops[mid].name), name);
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

int aws_shape_find(const struct aws_service *s, struct str name)
{
    int lo = 0, hi = (int)s->n_shapes - 1;
    while (name.n && lo <= hi) {
        int mid = (lo + hi) / 2, r = cmp_name(aws_name(s, s->shapes[mid].name), name);
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

const struct aws_member *aws_member_by_in(const struct aws_service *s,
                                          const struct aws_shape *sh, struct str name)
{
    int lo = 0, hi = (int)sh->n - 1;
    while (name.n && lo <= hi) {
        int mid = (lo + hi) / 2;
        const struct aws_member *m =
            &s->members[sh->first + s->by_in[sh->first + (uint32_t)mid]];
        int r = cmp_name(aws_name(s, m->in), name);
        if (r == 0) {
            return m;
        }
        if (r < 0) {
            lo = mid + 1;
        } else {
            hi = mid - 1;
        }
    }
    return NULL;
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
    int lo = 0, hi = (int)sh->n - 1;
    while (value.n && lo <= hi) {
        int mid = (lo + hi) / 2;
        int r = cmp_name(aws_name(s, s->enums[sh->first + (uint32_t)mid]), value);
        if (r == 0) {
            return true;
        }
        if (r < 0) {
            lo = mid + 1;
        } else {
            hi = mid - 1;
        }
    }
    return false;
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
