/* fake_path.h: where the stand-ins for the CUDA plugin lie: in ../lib beside the program's folder, in a build
 * tree and in a bundle alike. */
#ifndef DK_TEST_FAKE_PATH_H
#define DK_TEST_FAKE_PATH_H

/* The path of library `file`; valid until the next call. Ends the test where the program's own path is not
 * known. */
const char *fake_path(const char *file);

#endif
