#include "base/rand.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void rand_bytes(void *p, size_t n)
{
    unsigned char *b = p;
    while (n > 0) {
        ssize_t r = getrandom(b, n, 0);
        if (r < 0 && errno == EINTR) {
            continue;
        }
        if (r <= 0) {
            abort();
        }
        b += r;
        n -= (size_t)r;
    }
}

uint64_t rand_u64(void)
{
    uint64_t v = 0;
    rand_bytes(&v, sizeof(v));
    return v;
}

void rand_hex(char *p, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++, v >>= 4) {
        if (i % 16 == 0) {
            v = rand_u64();
        }
        p[i] = digits[v & 15];
    }
    p[n] = '\0';
}
