# Builders of masks against dense masks made by double loops.
flashspan_add_tests(mask_inputs LINK flashspan)
