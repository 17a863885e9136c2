#include "vpcd/imds_token.h"

#include "base/rand.h"
#include "base/time.h"
#include "codec/base64.h"
#include "crypto/digest.h"

#define BODY_SIZE  17u
#define TOKEN_SIZE (BODY_SIZE + SHA256_SIZE)

static void sign(struct str key, struct str body, struct str vpc_id, struct str instance_id,
                 uint8_t mac[SHA256_SIZE])
{
    const struct str parts[] = {body, vpc_id, STR("/"), instance_id};
    hmac_sha256_parts(key, parts, ARRAY_LEN(parts), mac);
}

struct str imds_token_make(struct arena *a, struct str key, struct str vpc_id,
                           struct str instance_id, uint64_t now_ns, uint64_t ttl_s)
{
    uint8_t t[TOKEN_SIZE] = {1};
    uint64_t end = now_ns / NS_PER_S + ttl_s;
    for (int i = 0; i < 8; i++) {
        t[1 + i] = (uint8_t)(end >> (56 - 8 * i));
    }
    rand_bytes(t + 9, 8);
    sign(key, str_n((const char *)t, BODY_SIZE), vpc_id, instance_id, t + BODY_SIZE);
    AUTO_BUF b;
    buf_init(&b, BASE64_LEN(TOKEN_SIZE) + 1);
    base64_encode(str_n((const char *)t, TOKEN_SIZE), &b);
    return arena_str_dup(a, buf_str(&b));
}

uint64_t imds_token_check(struct str token, struct str key, struct str vpc_id,
                          struct str instance_id, uint64_t now_ns)
{
    if (token.n != BASE64_LEN(TOKEN_SIZE)) {
        return 0;
    }
    AUTO_BUF b;
    buf_init(&b, TOKEN_SIZE + 3);
    if (base64_decode(token, &b) || buf_str(&b).n != TOKEN_SIZE || b.p[0] != 1) {
        return 0;
    }
    uint8_t mac[SHA256_SIZE];
    sign(key, str_n(b.p, BODY_SIZE), vpc_id, instance_id, mac);
    if (!str_eq_consttime(str_n((const char *)mac, SHA256_SIZE),
                          str_n(b.p + BODY_SIZE, SHA256_SIZE))) {
        return 0;
    }
    uint64_t end = 0, now_s = now_ns / NS_PER_S;
    for (int i = 0; i < 8; i++) {
        end = end << 8 | (uint8_t)b.p[1 + i];
    }
    /* A clock that was set back must not make a token live longer than it could have been asked
     * for. */
    return end > now_s && end - now_s <= IMDS_TTL_MAX_S ? end - now_s : 0;
}
