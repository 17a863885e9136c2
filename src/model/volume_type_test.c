/* Limits and speeds of volume types, against the figures of the EC2 API reference and the EBS
 * user guide. */
#include "base/test.h"
#include "model/volume_type.h"

#define MIB (UINT64_C(1) << 20)
#define ANY (-1)

static void test_limits(void **state)
{
    static const struct {
        const char *type;
        uint64_t size;
        int64_t iops, throughput;
        const char *want; /* NULL = good */
        uint64_t want_iops, want_throughput;
    } cases[] = {
        {"gp3", 1, ANY, ANY, NULL, 3000, 125},
        {"gp3", 65536, ANY, ANY, NULL, 3000, 125},
        {"gp3", 65537, ANY, ANY, "InvalidParameterValue", 0, 0},
        {"gp3", 0, ANY, ANY, "InvalidParameterValue", 0, 0},
        {"gp3", 160, 80000, 2000, NULL, 80000, 2000},
        {"gp3", 159, 80000, ANY, "InvalidParameterValue", 0, 0},
        {"gp3", 65536, 80001, ANY, "InvalidParameterValue", 0, 0},
        {"gp3", 100, 2999, ANY, "InvalidParameterValue", 0, 0},
        {"gp3", 1, 3000, ANY, NULL, 3000, 125},
        {"gp3", 1, 3001, ANY, "InvalidParameterValue", 0, 0},
        {"gp3", 100, -5, ANY, "InvalidParameterValue", 0, 0},
        {"gp3", 100, ANY, 124, "InvalidParameterValue", 0, 0},
        {"gp3", 100, ANY, 750, NULL, 3000, 750},
        {"gp3", 100, ANY, 751, "InvalidParameterValue", 0, 0},
        {"gp3", 100, 8000, 2000, NULL, 8000, 2000},
        {"gp3", 100, 8000, 2001, "InvalidParameterValue", 0, 0},
        {"gp2", 1, ANY, ANY, NULL, 100, 0},
        {"gp2", 100, ANY, ANY, NULL, 300, 0},
        {"gp2", 16384, ANY, ANY, NULL, 16000, 0},
        {"gp2", 16385, ANY, ANY, "InvalidParameterValue", 0, 0},
        {"gp2", 10, 100, ANY, "InvalidParameterCombination", 0, 0},
        {"gp2", 10, ANY, 125, "InvalidParameterCombination", 0, 0},
        {"io1", 4, 200, ANY, NULL, 200, 0},
        {"io1", 4, 201, ANY, "InvalidParameterValue", 0, 0},
        {"io1", 3, 100, ANY, "InvalidParameterValue", 0, 0},
        {"io1", 16384, 64000, ANY, NULL, 64000, 0},
        {"io1", 16384, 64001, ANY, "InvalidParameterValue", 0, 0},
        {"io1", 10, ANY, ANY, "MissingParameter", 0, 0},
        {"io1", 10, 99, ANY, "InvalidParameterValue", 0, 0},
        {"io1", 10, 100, 125, "InvalidParameterCombination", 0, 0},
        {"io2", 65536, 256000, ANY, NULL, 256000, 0},
        {"io2", 255, 256000, ANY, "InvalidParameterValue", 0, 0},
        {"io2", 256, 256001, ANY, "InvalidParameterValue", 0, 0},
        {"io2", 4, ANY, ANY, "MissingParameter", 0, 0},
        {"st1", 125, ANY, ANY, NULL, 0, 0},
        {"st1", 124, ANY, ANY, "InvalidParameterValue", 0, 0},
        {"st1", 16385, ANY, ANY, "InvalidParameterValue", 0, 0},
        {"sc1", 125, 100, ANY, "InvalidParameterCombination", 0, 0},
        {"standard", 1024, ANY, ANY, NULL, 0, 0},
        {"standard", 1025, ANY, ANY, "InvalidParameterValue", 0, 0},
        {"gp4", 10, ANY, ANY, "UnknownVolumeType", 0, 0},
        {"", 10, ANY, ANY, "UnknownVolumeType", 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = ERR_INIT;
        uint64_t iops = 77, throughput = 77;
        const struct volume_ask ask = {.type = str_c(cases[i].type),
                                       .size_gib = cases[i].size,
                                       .has_iops = cases[i].iops != ANY,
                                       .iops = cases[i].iops,
                                       .has_throughput = cases[i].throughput != ANY,
                                       .throughput = cases[i].throughput};
        int r = volume_type_check(&ask, &iops, &throughput, &err);
        if (cases[i].want) {
            assert_true(r < 0);
            assert_string_equal(err.name, cases[i].want);
            assert_true(iops == 77 && throughput == 77);
        } else {
            assert_int_equal(r, 0);
            assert_int_equal(iops, cases[i].want_iops);
            assert_int_equal(throughput, cases[i].want_throughput);
        }
    }
}

static void test_speeds(void **state)
{
    static const struct {
        const char *type;
        uint64_t size, iops, throughput;
        struct volume_speed want;
    } cases[] = {
        {"gp3", 10, 3000, 125, {3000, 0, 0, 125 * MIB, 0, 0, 256 << 10}},
        {"gp3", 200, 80000, 2000, {80000, 0, 0, 2000 * MIB, 0, 0, 256 << 10}},
        {"gp2", 10, 100, 0, {100, 3000, 5400000, 128 * MIB, 0, 0, 256 << 10}},
        {"gp2", 500, 1500, 0, {1500, 3000, 5400000, 250 * MIB, 0, 0, 256 << 10}},
        {"gp2", 2000, 6000, 0, {6000, 0, 0, 250 * MIB, 0, 0, 256 << 10}},
        {"io1", 100, 1000, 0, {1000, 0, 0, 250 * MIB, 0, 0, 256 << 10}},
        {"io1", 1000, 32000, 0, {32000, 0, 0, 500 * MIB, 0, 0, 256 << 10}},
        {"io1", 2000, 64000, 0, {64000, 0, 0, 1000 * MIB, 0, 0, 256 << 10}},
        {"io2", 100, 100, 0, {100, 0, 0, 25 * MIB, 0, 0, 256 << 10}},
        {"io2", 1000, 256000, 0, {256000, 0, 0, 4000 * MIB, 0, 0, 256 << 10}},
        /* st1, 1 TiB: 40 MiB/s, bursts of 250, a bucket of 1 TiB */
        {"st1", 1024, 0, 0, {500, 0, 0, 40 * MIB, 250 * MIB, UINT64_C(1) << 40, MIB}},
        {"st1", 2048, 0, 0, {500, 0, 0, 80 * MIB, 500 * MIB, UINT64_C(2) << 40, MIB}},
        /* 12.5 TiB and more: the baseline is the maximum */
        {"st1", 12800, 0, 0, {500, 0, 0, 500 * MIB, 0, 0, MIB}},
        {"sc1", 1024, 0, 0, {250, 0, 0, 12 * MIB, 80 * MIB, UINT64_C(1) << 40, MIB}},
        {"sc1", 16384, 0, 0, {250, 0, 0, 192 * MIB, 250 * MIB, UINT64_C(16) << 40, MIB}},
        {"standard", 100, 0, 0, {200, 0, 0, 90 * MIB, 0, 0, 256 << 10}},
        {"new", 100, 5, 5, {0}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct volume_speed s = volume_type_speed(str_c(cases[i].type), cases[i].size,
                                                  cases[i].iops, cases[i].throughput);
        assert_memory_equal(&s, &cases[i].want, sizeof(s));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_speeds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
