#include "blk/nbd_test_client.h"
#include "blk/nbd_world.h"

/* The handshake: what options get, and who is shown the door. */

#define SIZE (UINT64_C(16) << 20)

static struct nbd_world w;

static void open_world(const struct nbd_world_opts *o)
{
    nbd_world_init(&w, o);
}

static char big_name[65536], long_query[8192];
static const struct {
    const char *name;
    bool is_structured;
    uint32_t opt;
    const char *data;
    size_t n;
    uint32_t want[5]; /* types of the replies, 0 = end */
} options[] = {
    {"list", false, NBD_OPT_LIST, "", 0, {NBD_REP_SERVER, NBD_REP_ACK}},
    {"list with data", false, NBD_OPT_LIST, "x", 1, {NBD_ERR_INVALID}},
    {"starttls", false, NBD_OPT_STARTTLS, "", 0, {NBD_ERR_POLICY}},
    {"starttls with data", false, NBD_OPT_STARTTLS, "x", 1, {NBD_ERR_INVALID}},
    {"unknown", false, 4711, "xyz", 3, {NBD_ERR_UNSUP}},
    {"peek", false, 4, "", 0, {NBD_ERR_UNSUP}},
    {"info by name",
     false,
     NBD_OPT_INFO,
     "\0\0\0\5vol-1\0\0",
     11,
     {NBD_REP_INFO, NBD_REP_INFO, NBD_REP_ACK}},
    {"info of the default, with the name",
     false,
     NBD_OPT_INFO,
     "\0\0\0\0\0\1\0\1",
     8,
     {NBD_REP_INFO, NBD_REP_INFO, NBD_REP_INFO, NBD_REP_ACK}},
    {"info of another", false, NBD_OPT_INFO, "\0\0\0\5vol-2\0\0", 11, {NBD_ERR_UNKNOWN}},
    {"go of another", false, NBD_OPT_GO, "\0\0\0\5vol-2\0\0", 11, {NBD_ERR_UNKNOWN}},
    {"info that ends early", false, NBD_OPT_INFO, "\0\0\0\5vol", 7, {NBD_ERR_INVALID}},
    {"info with too many", false, NBD_OPT_INFO, "\0\0\0\0\0\2\0\1", 8, {NBD_ERR_INVALID}},
    {"info with a rest", false, NBD_OPT_INFO, "\0\0\0\0\0\0x", 7, {NBD_ERR_INVALID}},
    {"info with an endless name",
     false,
     NBD_OPT_INFO,
     "\377\377\377\377vol-1\0\0",
     11,
     {NBD_ERR_INVALID}},
    {"structured with data", false, NBD_OPT_STRUCTURED_REPLY, "x", 1, {NBD_ERR_INVALID}},
    {"contexts before structured",
     false,
     NBD_OPT_SET_META_CONTEXT,
     "\0\0\0\0\0\0\0\0",
     8,
     {NBD_ERR_INVALID}},
    {"no contexts", true, NBD_OPT_SET_META_CONTEXT, "\0\0\0\0\0\0\0\0", 8, {NBD_REP_ACK}},
    {"all contexts there are",
     true,
     NBD_OPT_LIST_META_CONTEXT,
     "\0\0\0\0\0\0\0\0",
     8,
     {NBD_REP_META_CONTEXT, NBD_REP_ACK}},
    {"those of base:",
     true,
     NBD_OPT_LIST_META_CONTEXT,
     "\0\0\0\0\0\0\0\1\0\0\0\5base:",
     17,
     {NBD_REP_META_CONTEXT, NBD_REP_ACK}},
    {"base: chooses nothing",
     true,
     NBD_OPT_SET_META_CONTEXT,
     "\0\0\0\0\0\0\0\1\0\0\0\5base:",
     17,
     {NBD_REP_ACK}},
    {"a context nobody has",
     true,
     NBD_OPT_SET_META_CONTEXT,
     "\0\0\0\0\0\0\0\1\0\0\0\6qemu:x",
     18,
     {NBD_REP_ACK}},
    {"dirt without a map",
     true,
     NBD_OPT_SET_META_CONTEXT,
     "\0\0\0\0\0\0\0\1\0\0\0\11spx:dirty",
     21,
     {NBD_REP_ACK}},
    {"contexts of another",
     true,
     NBD_OPT_SET_META_CONTEXT,
     "\0\0\0\1x\0\0\0\0",
     9,
     {NBD_ERR_UNKNOWN}},
    {"two queries promised, one sent",
     true,
     NBD_OPT_SET_META_CONTEXT,
     "\0\0\0\0\0\0\0\2\0\0\0\5base:",
     17,
     {NBD_ERR_INVALID}},
    {"a name of 64 KiB", false, NBD_OPT_INFO, big_name, sizeof(big_name), {NBD_ERR_TOO_BIG}},
    {"a query of 8 KiB",
     true,
     NBD_OPT_SET_META_CONTEXT,
     long_query,
     sizeof(long_query),
     {NBD_ERR_INVALID}},
};

static void test_options_get_their_answers(void **state)
{
    memcpy(long_query, "\0\0\0\0\0\0\0\1\0\0\37\364", 12); /* one query of the rest */
    open_world(&(struct nbd_world_opts){.size = SIZE});
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        print_message("%s\n", options[i].name);
        int fd = nbd_client(w.path);
        uint8_t d[512];
        nbd_client_hello(fd, NBD_FIXED_NEWSTYLE);
        if (options[i].is_structured) {
            nbd_client_opt(fd, NBD_OPT_STRUCTURED_REPLY, "", 0);
            nbd_client_until_ack(fd, NBD_OPT_STRUCTURED_REPLY);
        }
        nbd_client_opt(fd, options[i].opt, options[i].data, options[i].n);
        for (unsigned k = 0; options[i].want[k] != 0; k++) {
            assert_int_equal(nbd_client_rep(fd, options[i].opt, d, NULL), options[i].want[k]);
        }
        /* Nothing else came, and the next option is understood. */
        nbd_client_opt(fd, NBD_OPT_ABORT, "", 0);
        assert_int_equal(nbd_client_rep(fd, NBD_OPT_ABORT, d, NULL), NBD_REP_ACK);
        assert_true(nbd_client_is_at_end(fd));
        close(fd);
    }
    nbd_world_done(&w);
}

static void test_info_says_what_the_export_is(void **state)
{
    open_world(&(struct nbd_world_opts){.size = SIZE});
    int fd = nbd_client(w.path);
    uint8_t d[512];
    size_t n = 0;
    nbd_client_hello(fd, NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
    nbd_client_opt(fd, NBD_OPT_LIST, "", 0);
    assert_int_equal(nbd_client_rep(fd, NBD_OPT_LIST, d, &n), NBD_REP_SERVER);
    assert_int_equal(n, 9);
    assert_memory_equal(d, "\0\0\0\5vol-1", 9);
    nbd_client_until_ack(fd, NBD_OPT_LIST);
    nbd_client_opt(fd, NBD_OPT_INFO, "\0\0\0\0\0\1\0\1", 8);
    assert_int_equal(nbd_client_rep(fd, NBD_OPT_INFO, d, &n), NBD_REP_INFO);
    assert_int_equal(n, 12); /* EXPORT: 16 MiB; flags, flush, FUA, trim, zeroes, multi-conn */
    assert_memory_equal(d, "\0\0\0\0\0\0\1\0\0\0\1\155", 12);
    assert_int_equal(nbd_client_rep(fd, NBD_OPT_INFO, d, &n), NBD_REP_INFO);
    assert_int_equal(n, 14); /* BLOCK_SIZE: 512, 4,096, 32 MiB */
    assert_memory_equal(d, "\0\3\0\0\2\0\0\0\20\0\2\0\0\0", 14);
    assert_int_equal(nbd_client_rep(fd, NBD_OPT_INFO, d, &n), NBD_REP_INFO);
    assert_int_equal(n, 7);
    assert_memory_equal(d, "\0\1vol-1", 7);
    close(fd);
    nbd_world_done(&w);
}

static void test_the_old_way_in(void **state)
{
    uint8_t zeros[124] = {0}, got[124];
    open_world(&(struct nbd_world_opts){.size = SIZE});
    for (unsigned no_zeroes = 0; no_zeroes < 2; no_zeroes++) {
        int fd = nbd_client(w.path);
        nbd_client_hello(fd, NBD_FIXED_NEWSTYLE | (no_zeroes ? NBD_NO_ZEROES : 0));
        nbd_client_opt(fd, NBD_OPT_EXPORT_NAME, "vol-1", 5);
        assert_int_equal(nbd_client_num(fd, 8), SIZE);
        assert_int_equal(nbd_client_num(fd, 2), 0x16d);
        if (!no_zeroes) {
            nbd_client_get(fd, got, 124);
            assert_memory_equal(got, zeros, 124);
        }
        nbd_client_ask(fd, NBD_CMD_FLUSH, 0, 5, 0, 0, NULL);
        assert_int_equal(nbd_client_simple(fd, 5), 0);
        close(fd);
    }
    int fd = nbd_client(w.path);
    nbd_client_hello(fd, NBD_FIXED_NEWSTYLE);
    nbd_client_opt(fd, NBD_OPT_EXPORT_NAME, "vol-2", 5); /* it cannot be told more */
    assert_true(nbd_client_is_at_end(fd));
    close(fd);
    nbd_world_done(&w);
}

static void test_rude_hellos_are_disconnected(void **state)
{
    static const struct {
        const char *name;
        uint32_t flags;
        const char *then;
        size_t n;
    } rows[] = {
        {"unknown flags", 0x100 | NBD_FIXED_NEWSTYLE, "", 0},
        {"not fixed", 0, "", 0},
        {"bad magic", NBD_FIXED_NEWSTYLE, "IHAVEOPX\0\0\0\3\0\0\0\0", 16},
        {"an option of 4 GiB", NBD_FIXED_NEWSTYLE, "IHAVEOPT\0\0\0\6\377\377\377\377", 16},
        {"a name that is too long", NBD_FIXED_NEWSTYLE, "IHAVEOPT\0\0\0\1\0\1\0\0", 16},
        {"HTTP", NBD_FIXED_NEWSTYLE, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27},
    };
    open_world(&(struct nbd_world_opts){.size = SIZE});
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        print_message("%s\n", rows[i].name);
        int fd = nbd_client(w.path);
        nbd_client_hello(fd, rows[i].flags);
        nbd_client_send(fd, rows[i].then, rows[i].n);
        assert_true(nbd_client_is_at_end(fd));
        close(fd);
    }
    nbd_client_check_alive(w.path);
    nbd_world_done(&w);
}

static void test_a_flood_of_options_ends(void **state)
{
    open_world(&(struct nbd_world_opts){.size = SIZE});
    int fd = nbd_client(w.path);
    uint8_t d[512];
    unsigned n = 0;
    nbd_client_hello(fd, NBD_FIXED_NEWSTYLE);
    for (; n < 10000; n++) {
        nbd_client_opt(fd, 4711, "", 0);
        char c = 0;
        if (recv(fd, &c, 1, MSG_PEEK) <= 0) {
            break;
        }
        assert_int_equal(nbd_client_rep(fd, 4711, d, NULL), NBD_ERR_UNSUP);
    }
    assert_int_equal(n, NBD_MAX_OPTS);
    close(fd);
    nbd_client_check_alive(w.path);
    nbd_world_done(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_get_their_answers),
        cmocka_unit_test(test_info_says_what_the_export_is),
        cmocka_unit_test(test_the_old_way_in),
        cmocka_unit_test(test_rude_hellos_are_disconnected),
        cmocka_unit_test(test_a_flood_of_options_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
