/* A request of any bytes: every answer is one of the service's, a token is given to PUT only, and
 * nothing is told without a right to it. Input: the first byte picks who asks and the method, then
 * path, token and TTL, each ended by a newline. */
#include "vpcd/imds.h"

#include "base/time.h"
#include "vpcd/facts_sample.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct facts *f;
    f = f ? f : facts_sample();
    if (size == 0) {
        return 0;
    }
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_REQUEST_MAX);
    static const char *const methods[] = {"GET", "HEAD", "PUT", "POST", "OPTIONS", ""};
    struct str rest = str_n((const char *)data + 1, size - 1), path, token = STR_NONE,
               ttl = STR_NONE;
    struct imds_request r = {.method = str_c(methods[(data[0] & 15) % ARRAY_LEN(methods)]),
                             .is_forwarded = (data[0] & 32) != 0,
                             .now_ns = 1796050150 * NS_PER_S};
    (void)str_next(&rest, '\n', &path);
    (void)(str_next(&rest, '\n', &token) && str_next(&rest, '\n', &ttl));
    r.path = path;
    r.token = token.n ? token : STR_NONE;
    r.ttl = ttl.n ? ttl : STR_NONE;
    bool is_strict = !(data[0] & 16);
    const struct fact_eni *eni = facts_eni_by_ip(f, is_strict ? 0xac1f000a : 0xac1f000b);
    struct imds_answer out = {0};
    imds_answer(f, eni, &r, a, &out);
    assert(out.status == 200 || out.status == 400 || out.status == 401 || out.status == 403 ||
           out.status == 404 || out.status == 405);
    assert(out.content_type && out.body.p);
    assert(out.is_hop_limited == (out.status == 200 && str_eqc(r.method, "PUT")));
    if (out.status == 200 && is_strict && !out.is_hop_limited) {
        assert(r.token.p); /* no fuzzer finds the key of an HMAC */
        assert(false);
    }
    return 0;
}
