/* Frames as RFC 826 and RFC 5227 lay them out, byte by byte. */
#include "os/arp.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <string.h>

static const uint8_t mac[6] = {2, 0, 0, 0, 0, 1};

static void test_a_probe_has_no_sender_address(void **state)
{
    static const uint8_t want[ARP_SIZE] = {
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2,   0,   0, 0,   0, 1, /* to all, from us */
        0x08, 0x06, 0,    1,    0x08, 0,    6,   4,   0, 1,         /* a request */
        2,    0,    0,    0,    0,    1,    0,   0,   0, 0,         /* sender */
        0,    0,    0,    0,    0,    0,    192, 168, 1, 200,       /* target */
    };
    uint8_t got[ARP_SIZE];
    (void)state;
    arp_request(got, mac, 0, 0xc0a801c8);
    assert_memory_equal(got, want, ARP_SIZE);
}

static void test_an_announcement_names_the_address_twice(void **state)
{
    struct arp_packet p = {0};
    uint8_t got[ARP_SIZE];
    (void)state;
    arp_request(got, mac, 0xc0a801c8, 0xc0a801c8);
    assert_true(arp_parse(got, sizeof(got), &p));
    assert_false(p.is_reply);
    assert_int_equal(p.sender_ip, 0xc0a801c8);
    assert_int_equal(p.target_ip, 0xc0a801c8);
    assert_memory_equal(p.sender_mac, mac, 6);
}

static void test_other_frames_are_no_arp(void **state)
{
    struct arp_packet p = {0};
    uint8_t f[ARP_SIZE];
    (void)state;
    arp_request(f, mac, 0, 1);
    assert_false(arp_parse(f, ARP_SIZE - 1, &p));
    static const struct {
        size_t off;
        uint8_t value;
    } broken[] = {{13, 0x00}, {15, 2}, {16, 0x86}, {18, 8},
                  {19, 16},   {20, 1}, {21, 0},    {21, 3}};
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        uint8_t was = f[broken[i].off];
        f[broken[i].off] = broken[i].value;
        assert_false(arp_parse(f, ARP_SIZE, &p));
        f[broken[i].off] = was;
    }
    f[21] = 2;
    assert_true(arp_parse(f, ARP_SIZE, &p));
    assert_true(p.is_reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_probe_has_no_sender_address),
        cmocka_unit_test(test_an_announcement_names_the_address_twice),
        cmocka_unit_test(test_other_frames_are_no_arp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
