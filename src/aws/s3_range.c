#include "aws/s3_range.h"

#include "base/num.h"
#include <errno.h>
#include <stdio.h>

static bool all_digits(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
    }
    return true;
}

/* Digits of any length; what does not fit is as large as can be. */
static uint64_t saturated(struct str digits)
{
    uint64_t v = 0;
    return num_u64(digits, UINT64_MAX, &v) < 0 ? UINT64_MAX : v;
}

/* "a-b", "a-" or "-n" after "bytes=": the two numbers as text. */
static bool split(struct str header, struct str *ret_first, struct str *ret_last)
{
    static const struct str unit = {"bytes=", 6};
    if (header.n <= unit.n || !str_ieq(str_n(header.p, unit.n), unit)) {
        return false;
    }
    struct str spec = str_trim(str_skip(header, unit.n));
    struct str first = str_cut(spec, '-');
    if (first.n == spec.n) {
        return false;
    }
    *ret_first = first;
    *ret_last = str_skip(spec, first.n + 1);
    return all_digits(*ret_first) && all_digits(*ret_last) && ret_first->n + ret_last->n > 0;
}

static int unsatisfiable(struct arena *a, struct str header, uint64_t size,
                         struct s3_extra *extra, struct err *err)
{
    s3_extra_dup(extra, a, "RangeRequested", header);
    s3_extra_add(extra, "ActualObjectSize", arena_fmt(a, "%llu", (unsigned long long)size));
    return fail(err, -ERANGE, "InvalidRange", "The requested range is not satisfiable");
}

int s3_range_parse(struct arena *a, struct str header, uint64_t object_size,
                   struct s3_range *ret, struct s3_extra *extra, struct err *err)
{
    struct str first_text, last_text;
    uint64_t first = 0, last = UINT64_MAX;
    *ret = (struct s3_range){.first = 0, .size = object_size};
    if (!str_is_set(header) || !split(header, &first_text, &last_text)) {
        return 0;
    }
    if (first_text.n == 0) { /* the last n bytes */
        uint64_t n = saturated(last_text);
        if (n == 0) {
            return unsatisfiable(a, header, object_size, extra, err);
        }
        if (object_size == 0) {
            return 0; /* as AWS: all of nothing */
        }
        first = n < object_size ? object_size - n : 0;
    } else {
        first = saturated(first_text);
        last = last_text.n ? saturated(last_text) : UINT64_MAX;
        if (last < first) {
            return 0; /* not a range at all: RFC 9110 section 14.1.1 */
        }
        if (first >= object_size) {
            return unsatisfiable(a, header, object_size, extra, err);
        }
    }
    last = MIN(last, object_size - 1);
    *ret = (struct s3_range){.is_partial = true, .first = first, .size = last - first + 1};
    return 0;
}

int s3_copy_range_parse(struct str header, uint64_t source_size, struct s3_range *ret,
                        struct err *err)
{
    struct str first_text, last_text;
    uint64_t first = 0, last = 0;
    *ret = (struct s3_range){.first = 0, .size = source_size};
    if (!str_is_set(header)) {
        return 0;
    }
    if (!split(header, &first_text, &last_text) || first_text.n == 0 || last_text.n == 0 ||
        num_u64(first_text, INT64_MAX, &first) < 0 ||
        num_u64(last_text, INT64_MAX, &last) < 0 || last < first) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "The x-amz-copy-source-range value must be of the form bytes=first-last "
                    "where first and last are the zero-based offsets of the first and last "
                    "bytes to copy");
    }
    if (last >= source_size) {
        return fail(err, -ERANGE, "InvalidRange",
                    "Range specified is not valid for source object of size: %llu",
                    (unsigned long long)source_size);
    }
    *ret = (struct s3_range){.is_partial = true, .first = first, .size = last - first + 1};
    return 0;
}

const char *s3_content_range(const struct s3_range *r, uint64_t object_size,
                             char out[S3_CONTENT_RANGE_SIZE])
{
    unsigned long long first = r->first, size = r->size, all = object_size;
    (void)snprintf(out, S3_CONTENT_RANGE_SIZE, "bytes %llu-%llu/%llu", first,
                   first + (size ? size - 1 : 0), all);
    return out;
}

int s3_part_number(struct str part_number, struct str range, unsigned *ret, struct err *err)
{
    uint64_t n = 0;
    if (num_u64(part_number, S3_PART_MAX, &n) < 0 || n == 0) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "Part number must be an integer between 1 and 10000, inclusive");
    }
    if (str_is_set(range)) {
        return fail(err, -EINVAL, "InvalidRequest",
                    "Cannot specify both Range header and partNumber query parameter");
    }
    *ret = (unsigned)n;
    return 0;
}

int s3_part_check(struct arena *a, unsigned part_number, unsigned n_parts,
                  struct s3_extra *extra, struct err *err)
{
    n_parts = n_parts ? n_parts : 1;
    if (part_number <= n_parts) {
        return 0;
    }
    s3_extra_add(extra, "PartNumberRequested", arena_fmt(a, "%u", part_number));
    s3_extra_add(extra, "ActualPartCount", arena_fmt(a, "%u", n_parts));
    return fail(err, -ERANGE, "InvalidPartNumber",
                "The requested partnumber is not satisfiable");
}
