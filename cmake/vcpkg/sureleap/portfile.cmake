# SPDX-License-Identifier: MIT
#
# The overlay port of sureleap installs the checkout it lies in:
#   vcpkg install "sureleap[eigen,json]" --overlay-ports=<checkout>/cmake/vcpkg
# vcpkg does not look beyond the port's own folder for changes, nor does its cache: after a pull, `vcpkg remove sureleap`
# comes first, and --binarysource=clear goes with the install.
set(VCPKG_BUILD_TYPE release)  # headers only

get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

vcpkg_check_features(
    OUT_FEATURE_OPTIONS FEATURE_OPTIONS
    FEATURES
        eigen SURELEAP_WITH_EIGEN
        xsimd SURELEAP_WITH_XSIMD
        json  SURELEAP_WITH_JSON
)

vcpkg_cmake_configure(
    SOURCE_PATH "${SOURCE_PATH}"
    OPTIONS
        ${FEATURE_OPTIONS}
        -DSURELEAP_WITH_CUDA=OFF
        -DSURELEAP_WITH_LLAMA=OFF
        -DSURELEAP_BUILD_TESTS=OFF
        -DSURELEAP_BUILD_EXAMPLES=OFF
        -DSURELEAP_BUILD_BENCH=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/cmake/sureleap)
vcpkg_fixup_pkgconfig()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")  # the licence, which vcpkg wants under another name
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
