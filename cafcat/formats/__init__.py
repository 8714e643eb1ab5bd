"""Archive formats: conversion between archive bytes and entries."""
