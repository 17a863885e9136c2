/* Whatever a file holds: merging twice is merging once, another profile's lines stay, and what was
 * in front of our section is not touched. */
#include "base/macro.h"
#include "spx/profile.h"
#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct profile_pair pairs[] = {
    {"region", {"r1", 2}},
    {"endpoint_url", {"https://h", 9}},
    {"aws_session_token", {NULL, 0}},
    {"s3", {"\na = b\nc = d", 12}},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str in = str_n((const char *)data, size);
    AUTO_BUF one, two, longer, of_longer;
    buf_init(&one, size * 2 + 1000);
    buf_init(&two, size * 2 + 1000);
    buf_init(&longer, size + 1000);
    buf_init(&of_longer, size * 2 + 1000);
    profile_merge(in, "profile x", pairs, ARRAY_LEN(pairs), &one);
    assert(buf_ok(&one) && one.n + 1000 > size / 64);
    profile_merge(buf_str(&one), "profile x", pairs, ARRAY_LEN(pairs), &two);
    assert(str_eq(buf_str(&one), buf_str(&two)));
    assert(str_find_str(buf_str(&one), STR("endpoint_url = https://h")) >= 0);

    /* A profile in front stays byte for byte. */
    struct str front = STR("[default]\nregion = mine\naws_session_token = mine\n");
    buf_add(&longer, front);
    buf_add(&longer, in);
    profile_merge(buf_str(&longer), "profile x", pairs, ARRAY_LEN(pairs), &of_longer);
    assert(str_has_prefix(buf_str(&of_longer), front));
    return 0;
}
