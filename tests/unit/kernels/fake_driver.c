/* fake_driver.c: a libcuda.so.1 to link against; it is not on the search path when the test runs. */
int cuInit(unsigned flags);
__attribute__((visibility("default"))) int cuInit(unsigned flags)
{
    return (int)flags;
}
