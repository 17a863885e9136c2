/* What a parsed frame says, put into a frame again, says the same. */
#include "os/arp.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arp_packet a = {0}, b = {0};
    if (!arp_parse(data, size, &a)) {
        return 0;
    }
    assert(size >= ARP_SIZE);
    uint8_t again[ARP_SIZE];
    arp_request(again, a.sender_mac, a.sender_ip, a.target_ip);
    assert(arp_parse(again, sizeof(again), &b));
    assert(!b.is_reply && b.sender_ip == a.sender_ip && b.target_ip == a.target_ip);
    assert(memcmp(a.sender_mac, b.sender_mac, 6) == 0);
    return 0;
}
