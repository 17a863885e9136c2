/* Any bytes: the answer stays in its buffer, is an answer, and echoes the transaction. */
#include "vpcd/dhcp.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dhcp_lease l = {.mac = {0x0a, 0, 0, 0, 0, 1},
                           .ip = 0xac1f000a,
                           .gateway = 0xac1f0001,
                           .dns = 0xac1f0002,
                           .prefix_len = 20,
                           .mtu = 9001,
                           .lease_s = 3600,
                           .host_name = STR("ip-172-31-0-10"),
                           .domain = STR("r.compute.internal")};
    if (size >= 34) {
        memcpy(l.mac, data + 28, 6); /* else nearly everything is ignored at the door */
    }
    struct dhcp_reply r;
    if (dhcp_answer(str_n((const char *)data, size), &l, &r) == DHCP_SEND) {
        assert(r.n >= 300 && r.n <= DHCP_MAX_SIZE);
        assert(r.p[0] == 2 && memcmp(r.p + 4, data + 4, 4) == 0 &&
               memcmp(r.p + 28, l.mac, 6) == 0);
        assert(memcmp(r.p + 16, "\0\0\0\0", 4) == 0 ||
               memcmp(r.p + 16, "\xac\x1f\x00\x0a", 4) == 0);
        assert(r.to == UINT32_MAX || r.to == l.ip ||
               r.to == ((uint32_t)data[12] << 24 | (uint32_t)data[13] << 16 |
                        (uint32_t)data[14] << 8 | data[15]));
        size_t i = 240; /* the options hold together and end */
        while (r.p[i] != 255) {
            assert(i + 2 < r.n);
            i += 2u + r.p[i + 1];
            assert(i < r.n);
        }
    }
    return 0;
}
