"""Shapes of samples that several tests use."""

from trainables.workloads import vgg19

VGG_SHAPE = vgg19.shape_for(10)  # of VGG19 with ten classes
