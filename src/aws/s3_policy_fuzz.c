/* POST policies of strangers, as plain JSON. Input: the first line is the fields
 * ("name=value&..."), the rest the policy.
 * Invariants: a policy that allows the fields does not allow one that it does not name, nor
 *             another bucket that it does not name, nor any time after its end. */
#include "aws/s3_form.h"

#include "base/time.h"
#include "codec/uri.h"
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_NS (UINT64_C(1451347200) * NS_PER_S)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str all = {(const char *)data, size};
    struct str line = str_cut(all, '\n'), rest = line, name, value;
    struct s3_form_field v[32];
    struct s3_form_upload up = {.success_status = 0};
    struct err err = ERR_INIT;
    size_t n = 0;
    if (size > 65536) {
        return 0;
    }
    while (n + 1 < ARRAY_LEN(v) && rest.n && uri_next_field(&rest, &name, &value)) {
        v[n++] = (struct s3_form_field){name, str_is_set(value) ? value : STR("")};
    }
    struct s3_form_policy_in in = {.json = str_skip(all, line.n + 1),
                                   .bucket = STR("b1"),
                                   .fields = v,
                                   .n_fields = n,
                                   .now_ns = NOW_NS};
    int rc = s3_form_policy(&in, &up, &err);
    assert((rc < 0) == (err.code < 0));
    if (rc < 0) {
        return 0;
    }
    bool has_escape = str_find(in.json, '\\', 0) >= 0;
    v[n] = (struct s3_form_field){STR("nobody-names-this"), STR("1")};
    in.n_fields = n + 1;
    rc = s3_form_policy(&in, &up, NULL);
    assert(rc < 0 || has_escape || str_find_str(in.json, STR("nobody")) >= 0 ||
           str_find_str(in.json, STR("NOBODY")) >= 0);
    in.n_fields = n;
    in.now_ns = UINT64_MAX;
    rc = s3_form_policy(&in, &up, NULL);
    assert(rc < 0);
    return 0;
}
