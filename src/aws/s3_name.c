#include "aws/s3_name.h"

#include "codec/hex.h"
#include "codec/uri.h"
#include <errno.h>

/* ---- buckets and keys ---- */

static bool is_lower_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Four numbers with dots, as an address looks: hosts could not be told from buckets. */
static bool is_ip_form(struct str s)
{
    struct str rest = s, part;
    size_t n = 0;
    while (str_is_set(rest) && str_next(&rest, '.', &part)) {
        if (part.n == 0 || part.n > 3) {
            return false;
        }
        for (size_t i = 0; i < part.n; i++) {
            if (part.p[i] < '0' || part.p[i] > '9') {
                return false;
            }
        }
        n++;
    }
    return n == 4;
}

static bool is_new_bucket_name(struct str s)
{
    static const char *const prefixes[] = {"xn--", "sthree-", "amzn-s3-demo-"};
    static const char *const suffixes[] = {"-s3alias", "--ol-s3", ".mrap", "--x-s3",
                                           "--table-s3"};
    if (s.n < 3 || s.n > 63 || !is_lower_alnum(s.p[0]) || !is_lower_alnum(s.p[s.n - 1])) {
        return false;
    }
    for (size_t i = 1; i < s.n; i++) {
        char c = s.p[i], before = s.p[i - 1];
        if (!is_lower_alnum(c) && c != '-' && c != '.') {
            return false;
        }
        /* "..", ".-" and "-.": no label of a host may be so. */
        if ((c == '.' && (before == '.' || before == '-')) || (c == '-' && before == '.')) {
            return false;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++) {
        if (str_has_prefixc(s, prefixes[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
        if (str_has_suffix(s, str_c(suffixes[i]))) {
            return false;
        }
    }
    return !is_ip_form(s);
}

int s3_bucket_name_check(struct str name, struct s3_extra *extra, struct err *err)
{
    if (is_new_bucket_name(name)) {
        return 0;
    }
    s3_extra_add(extra, "BucketName", name);
    return fail(err, -EINVAL, "InvalidBucketName", "The specified bucket is not valid.");
}

bool s3_bucket_name_ok(struct str name)
{
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!is_lower_alnum(c) && !(c >= 'A' && c <= 'Z') && c != '-' && c != '.' && c != '_') {
            return false;
        }
    }
    return name.n >= 3 && name.n <= 255;
}

int s3_key_check(struct str key, struct err *err)
{
    if (key.n > S3_KEY_MAX) {
        return fail(err, -ENAMETOOLONG, "KeyTooLongError", "Your key is too long");
    }
    if (key.n == 0 || str_utf8_len(key) == SIZE_MAX) {
        return fail(err, -EINVAL, "InvalidURI", "Couldn't parse the specified URI.");
    }
    return 0;
}

/* ---- copy source ---- */

static int bad_source(struct arena *a, struct str header, struct s3_extra *extra,
                      struct err *err, const char *msg)
{
    s3_extra_add(extra, "ArgumentName", STR("x-amz-copy-source"));
    s3_extra_dup(extra, a, "ArgumentValue", str_n(header.p, MIN(header.n, (size_t)2048)));
    return fail(err, -EINVAL, "InvalidArgument", "%s", msg);
}

int s3_copy_source_parse(struct arena *a, struct str header, struct s3_copy_source *ret,
                         struct s3_extra *extra, struct err *err)
{
    static const struct str mark = {"?versionId=", 11};
    struct s3_copy_source src = {.version_id = STR_NONE};
    struct str path = header, plain;
    ptrdiff_t at = str_find_str(header, mark);
    if (at >= 0) {
        path.n = (size_t)at;
        if (uri_decode(a, str_skip(header, path.n + mark.n), URI_PLUS_IS_SPACE,
                       &src.version_id) < 0) {
            return bad_source(a, header, extra, err, "Invalid copy source encoding");
        }
    }
    if (uri_decode(a, path.p ? path : STR(""), URI_PLUS_IS_SPACE, &plain) < 0) {
        return bad_source(a, header, extra, err, "Invalid copy source encoding");
    }
    if (str_has_prefixc(plain, "arn:")) {
        return fail(err, -ENOSYS, "NotImplemented",
                    "Copy sources that are named by an access point are not implemented");
    }
    plain = str_skip(plain, plain.n && plain.p[0] == '/' ? 1 : 0);
    src.bucket = str_cut(plain, '/');
    src.key = str_skip(plain, src.bucket.n + 1);
    if (src.bucket.n == 0 || src.key.n == 0) {
        return bad_source(a, header, extra, err,
                          "Copy Source must mention the source bucket and key: "
                          "sourcebucket/sourcekey");
    }
    if (!s3_bucket_name_ok(src.bucket)) {
        return bad_source(a, header, extra, err, "Invalid copy source bucket name");
    }
    if (s3_key_check(src.key, NULL) < 0) {
        return bad_source(a, header, extra, err, "Invalid copy source object key");
    }
    *ret = src;
    return 0;
}

/* ---- tags ---- */

/* Of ASCII: letters, digits, space and "+-=._:/@"; of the rest all that is no control. Length in
 * code points. */
static bool is_tag_text(struct str s, size_t max)
{
    size_t len = str_utf8_len(s);
    if (len == SIZE_MAX || len > max) {
        return false;
    }
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x80 && !is_lower_alnum(s.p[i]) && !(c >= 'A' && c <= 'Z') &&
            !(c && strchr(" +-=._:/@", c))) {
            return false;
        }
        if (c == 0xc2 && i + 1 < s.n && (unsigned char)s.p[i + 1] < 0xa0) {
            return false; /* U+0080..U+009F */
        }
    }
    return true;
}

int s3_tags_check(const struct s3_tag *v, size_t n, size_t max, struct s3_extra *extra,
                  struct err *err)
{
    if (n > max) {
        return max == S3_TAGS_MAX
                   ? fail(err, -E2BIG, "InvalidTag", "Object tags cannot be greater than 10")
                   : fail(err, -E2BIG, "BadRequest",
                          "Bucket tag count cannot be greater than %zu", max);
    }
    for (size_t i = 0; i < n; i++) {
        if (v[i].key.n == 0 || !is_tag_text(v[i].key, S3_TAG_KEY_MAX)) {
            s3_extra_add(extra, "TagKey", v[i].key);
            return fail(err, -EINVAL, "InvalidTag", "The TagKey you have provided is invalid");
        }
        if (!is_tag_text(v[i].value, S3_TAG_VALUE_MAX)) {
            s3_extra_add(extra, "TagKey", v[i].key);
            s3_extra_add(extra, "TagValue", v[i].value);
            return fail(err, -EINVAL, "InvalidTag",
                        "The TagValue you have provided is invalid");
        }
        if (v[i].key.n >= 4 && str_ieq(str_n(v[i].key.p, 4), STR("aws:"))) {
            s3_extra_add(extra, "TagKey", v[i].key);
            return fail(err, -EINVAL, "InvalidTag", "%s",
                        max == S3_TAGS_MAX
                            ? "Your TagKey cannot be prefixed with aws:"
                            : "System tags cannot be added/updated by requester");
        }
        for (size_t k = 0; k < i; k++) {
            if (str_eq(v[k].key, v[i].key)) {
                s3_extra_add(extra, "TagKey", v[i].key);
                return fail(err, -EINVAL, "InvalidTag",
                            "Cannot provide multiple Tags with the same key");
            }
        }
    }
    return 0;
}

static int bad_tagging(struct err *err)
{
    return fail(
        err, -EINVAL, "InvalidArgument",
        "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query "
        "parameters without tag name duplicates.");
}

int s3_tags_parse(struct arena *a, struct str header, struct s3_tags *ret, struct err *err)
{
    struct s3_tags t = {.n = 0};
    struct str name, value, rest = header;
    t.v = arena_array(a, S3_TAGS_MAX + 1, sizeof(*t.v));
    if (!t.v) {
        return fail(err, -ENOMEM, "RequestHeaderSectionTooLarge",
                    "Your request header and query string sizes exceed the maximum allowed "
                    "size.");
    }
    while (str_is_set(rest) && uri_next_field(&rest, &name, &value)) {
        struct s3_tag *tag = &t.v[t.n];
        if (t.n == S3_TAGS_MAX) {
            t.n++;
            break;
        }
        if (uri_decode(a, name, URI_PLUS_IS_SPACE, &tag->key) < 0 ||
            uri_decode(a, str_is_set(value) ? value : STR(""), URI_PLUS_IS_SPACE, &tag->value) <
                0) {
            return bad_tagging(err);
        }
        for (size_t k = 0; k < t.n; k++) {
            if (str_eq(t.v[k].key, tag->key)) {
                return bad_tagging(err);
            }
        }
        t.n++;
    }
    int rc = s3_tags_check(t.v, t.n, S3_TAGS_MAX, NULL, err);
    if (rc == 0) {
        *ret = t;
    }
    return rc;
}

/* ---- encoding-type=url ---- */

void s3_url_encode(struct str s, struct buf *out)
{
    uri_encode(s, URI_KEEP_SLASH, out);
}

/* ---- version ids ---- */

static const uint8_t null_id[16];

const char *s3_version_id_text(const uint8_t id[16], char out[S3_VERSION_ID_SIZE])
{
    if (memcmp(id, null_id, sizeof(null_id)) == 0) {
        memcpy(out, "null", 5);
    } else {
        hex_encode_to(id, 16, out);
    }
    return out;
}

int s3_version_id_parse(struct str s, uint8_t ret[16], struct s3_extra *extra, struct err *err)
{
    uint8_t id[16] = {0};
    bool is_ok = str_eqc(s, "null");
    if (!is_ok && s.n == 32 && hex_decode(s, id, sizeof(id)) == 0) {
        is_ok = memcmp(id, null_id, sizeof(id)) != 0;
        for (size_t i = 0; i < s.n; i++) {
            is_ok = is_ok && !(s.p[i] >= 'A' && s.p[i] <= 'F'); /* one spelling only */
        }
    }
    if (!is_ok) {
        s3_extra_add(extra, "ArgumentName", STR("versionId"));
        s3_extra_add(extra, "ArgumentValue", str_n(s.p, MIN(s.n, (size_t)1024)));
        return fail(err, -EINVAL, "InvalidArgument", "Invalid version id specified");
    }
    memcpy(ret, id, sizeof(id));
    return 0;
}
